#include "dpb_claim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "dpb_launched.h"
#include "dpb_log.h"

/* The first line of a small file of the system; "" when there is none. */
static void read_line(const char *path, char *text, size_t text_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, text_bytes - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* "net:[4026531840]", cut to fit. */
static void read_name_space(const char *path, char *text, size_t text_bytes)
{
    ssize_t got = readlink(path, text, text_bytes - 1);
    text[got > 0 ? got : 0] = '\0';
}

/* 32 hex digits over the bytes of a file; "" when it cannot be read. */
static void hash_file(const char *path, char *text, size_t text_bytes)
{
    static char chunk[65536];
    text[0] = '\0';
    XXH3_state_t *state = XXH3_createState();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    if (state && fd >= 0) {
        XXH3_128bits_reset(state);
        while ((got = read(fd, chunk, sizeof(chunk))) > 0)
            XXH3_128bits_update(state, chunk, (size_t)got);
    }
    if (got == 0) {
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        snprintf(text, text_bytes, "%016llx%016llx", (unsigned long long)hash.high64,
                 (unsigned long long)hash.low64);
    }
    if (fd >= 0)
        close(fd);
    XXH3_freeState(state);
}

dpb_status dpb_claim_self(struct dpb_world_claim *claim)
{
    struct dpb_launched launched;
    char why[256];
    dpb_status st = dpb_launched_find(&launched, why, sizeof(why));
    if (st < 0) {
        dpb_error("cannot tell which rank this process is: %s", why);
        return st;
    }
    *claim = (struct dpb_world_claim){
            .rank = launched.rank,
            .size = launched.size,
            .local_rank = launched.local_rank,
            .pid = (long)getpid(),
    };
    if (gethostname(claim->host, sizeof(claim->host) - 1) != 0)
        claim->host[0] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", claim->machine, sizeof(claim->machine));
    read_name_space("/proc/self/ns/net", claim->network, sizeof(claim->network));
    read_name_space("/proc/self/ns/time", claim->time, sizeof(claim->time));
    hash_file("/proc/self/exe", claim->build, sizeof(claim->build));
    return DPB_OK;
}

/* One row for every text: what is written is what is read. */
struct text_field {
    const char *key;
    size_t offset, bytes;
};

#define TEXT(member)                                                                               \
    {                                                                                              \
#member, offsetof(struct dpb_world_claim, member),                                         \
                sizeof(((struct dpb_world_claim *)0)->member)                                      \
    }

static const struct text_field texts[] = {TEXT(host), TEXT(machine), TEXT(network),
                                          TEXT(time), TEXT(build),   TEXT(settings)};

dpb_json *dpb_claim_to_json(const struct dpb_world_claim *claim)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_int(json, "rank", claim->rank);
    dpb_json_set_int(json, "size", claim->size);
    dpb_json_set_int(json, "local_rank", claim->local_rank);
    dpb_json_set_int(json, "pid", claim->pid);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        dpb_json_set_string(json, texts[i].key, (const char *)claim + texts[i].offset);
    return json;
}

void dpb_claim_from_json(const dpb_json *json, struct dpb_world_claim *claim)
{
    *claim = (struct dpb_world_claim){
            .rank = (int)dpb_json_as_int(dpb_json_get(json, "rank"), -1),
            .size = (int)dpb_json_as_int(dpb_json_get(json, "size"), -1),
            .local_rank = (int)dpb_json_as_int(dpb_json_get(json, "local_rank"), -1),
            .pid = (long)dpb_json_as_int(dpb_json_get(json, "pid"), -1),
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        snprintf((char *)claim + texts[i].offset, texts[i].bytes, "%s",
                 dpb_json_as_string(dpb_json_get(json, texts[i].key), ""));
}
