/* --hosts and --hostfile. */
#include "dpb_world.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_units.h"

#define HOSTFILE_BYTES_MAX (1 << 20)
#define BYTE_ORDER_MARK    "\xef\xbb\xbf" /* some editors begin a file with it */
#define NO_SLOTS           (-1)

/* The reading of one list. */
struct reader {
    struct dpb_world_hosts *hosts;
    const char *origin; /* "--hosts", or the file's path */
    int line;           /* 0: it has no lines */
    /* The last host of either kind. */
    char with_number[DPB_WORLD_HOST_BYTES], without[DPB_WORLD_HOST_BYTES];
};

static dpb_status refuse(const struct reader *r, const char *entry, const char *why)
{
    char where[32] = "";
    if (r->line > 0)
        snprintf(where, sizeof(where), ":%d", r->line);
    dpb_error("%s%s: \"%s\" is no host: %s", r->origin, where, entry, why);
    dpb_log_hint(r->line > 0 ? "a line is \"node1 slots=4\", \"node1:4\" or \"node1\""
                             : "write \"node1:4,node2:4\"; an IPv6 address is in brackets, "
                               "\"[fe80::1]:4\"");
    return DPB_ERR_USAGE;
}

/* A name that begins with '-' would be an option of mpirun. */
static bool is_name(const char *name)
{
    if (!name[0] || name[0] == '-')
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-_:%", *c))
            return false;
    return true;
}

static bool read_slots(const char *text, int *slots)
{
    int64_t value;
    if (!isdigit((unsigned char)text[0]) || dpb_parse_i64(text, &value, NULL) < 0 || value < 1 ||
        value > DPB_WORLD_RANKS_MAX)
        return false;
    *slots = (int)value;
    return true;
}

static struct dpb_world_host *find(const struct dpb_world_hosts *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (strcasecmp(hosts->items[i].name, name) == 0)
            return &hosts->items[i];
    return NULL;
}

static dpb_status add(struct reader *r, const char *name, int slots)
{
    struct dpb_world_hosts *hosts = r->hosts;
    char *seen = slots == NO_SLOTS ? r->without : r->with_number;
    snprintf(seen, DPB_WORLD_HOST_BYTES, "%s", name);
    const int count = slots == NO_SLOTS ? 1 : slots;
    struct dpb_world_host *known = find(hosts, name);
    hosts->slots += count;
    if (known) {
        known->slots += count;
        dpb_warn("%s: host \"%s\" is named again: it is one host with %d slots", r->origin, name,
                 known->slots);
        return DPB_OK;
    }
    void *grown = realloc(hosts->items, (hosts->count + 1) * sizeof(*hosts->items));
    if (!grown)
        return DPB_ERR_NO_MEMORY;
    hosts->items = grown;
    struct dpb_world_host *host = &hosts->items[hosts->count++];
    snprintf(host->name, sizeof(host->name), "%s", name);
    host->slots = count;
    return DPB_OK;
}

/* "name", "name:4", "[address]:4"; `text` is cut into name and slots. An address with several
 * colons and no brackets has no number. */
static dpb_status add_entry(struct reader *r, char *text, int slots)
{
    char entry[DPB_WORLD_HOST_BYTES + 64];
    snprintf(entry, sizeof(entry), "%s", text);
    char *name = text, *number = NULL;
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (!end)
            return refuse(r, entry, "the bracket is not closed");
        *end = '\0';
        name = text + 1;
        if (end[1] && end[1] != ':')
            return refuse(r, entry, "after the bracket only \":\" and a number of slots can stand");
        number = end[1] ? end + 2 : NULL;
    } else {
        char *colon = strchr(text, ':');
        if (colon && !strchr(colon + 1, ':')) {
            *colon = '\0';
            number = colon + 1;
        }
    }
    if (!is_name(name))
        return refuse(r, entry, name[0] ? "no host has such a name" : "the name is empty");
    if (strlen(name) >= DPB_WORLD_HOST_BYTES)
        return refuse(r, entry, "the name is too long");
    if (number && slots != NO_SLOTS)
        return refuse(r, entry, "its slots are given twice");
    if (number && !read_slots(number, &slots))
        return refuse(r, entry, "slots are a number from 1 to 4096");
    return add(r, name, slots);
}

/* Whatever the list was: warnings about it as a whole. */
static void warn_of_mixture(const struct reader *r)
{
    if (r->with_number[0] && r->without[0])
        dpb_warn("%s: some hosts have a number of slots (\"%s\") and some have none (\"%s\"): "
                 "those have one",
                 r->origin, r->with_number, r->without);
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

dpb_status dpb_world_hosts_parse(const char *text, struct dpb_world_hosts *hosts)
{
    struct reader r = {.hosts = hosts, .origin = "--hosts"};
    char *copy = strdup(text);
    dpb_status st = copy ? DPB_OK : DPB_ERR_NO_MEMORY;
    *hosts = (struct dpb_world_hosts){0};
    for (char *rest = copy, *entry; st == DPB_OK && (entry = strsep(&rest, ","));)
        st = add_entry(&r, trim(entry), NO_SLOTS);
    free(copy);
    if (st < 0)
        dpb_world_hosts_release(hosts);
    else
        warn_of_mixture(&r);
    return st;
}

/* What may follow the name in Open MPI's files: "slots=4", "max_slots = 8". The latter allows more
 * ranks than slots, which are never started here. */
static dpb_status read_keys(const struct reader *r, const char *line, char *rest, int *slots)
{
    while (*(rest = trim(rest))) {
        int value;
        char *key = rest, *equals = strchr(rest, '=');
        if (!equals)
            return refuse(r, line, "only slots=N may follow the name");
        *equals = '\0';
        key = trim(key);
        char *number = equals + 1 + strspn(equals + 1, " \t");
        char *end = number + strcspn(number, " \t");
        rest = *end ? end + 1 : end;
        *end = '\0';
        if (!read_slots(number, &value))
            return refuse(r, line, "slots are a number from 1 to 4096");
        if (strcmp(key, "slots") == 0)
            *slots = value;
        else if (strcmp(key, "max_slots") != 0 && strcmp(key, "max-slots") != 0)
            return refuse(r, line, "only slots=N may follow the name");
    }
    return DPB_OK;
}

static dpb_status read_host_line(struct reader *r, char *line)
{
    int slots = NO_SLOTS;
    char whole[DPB_WORLD_HOST_BYTES];
    line[strcspn(line, "#")] = '\0';
    line = trim(line);
    if (!line[0])
        return DPB_OK;
    snprintf(whole, sizeof(whole), "%s", line);
    char *rest = line + strcspn(line, " \t");
    if (*rest) {
        *rest++ = '\0';
        DPB_TRY(read_keys(r, whole, rest, &slots));
    }
    return add_entry(r, line, slots);
}

dpb_status dpb_world_hosts_read(const char *path, struct dpb_world_hosts *hosts)
{
    struct reader r = {.hosts = hosts, .origin = path};
    struct dpb_str text = {0};
    *hosts = (struct dpb_world_hosts){0};
    dpb_status st = dpb_file_read_most(path, HOSTFILE_BYTES_MAX, &text);
    const size_t mark =
            st == DPB_OK && text.text && strncmp(text.text, BYTE_ORDER_MARK, 3) == 0 ? 3 : 0;
    for (char *rest = text.text ? text.text + mark : NULL, *line;
         st == DPB_OK && (line = strsep(&rest, "\n"));) {
        r.line++;
        st = read_host_line(&r, line);
    }
    if (st == DPB_OK && hosts->count == 0) {
        dpb_error("\"%s\" names no host", path);
        dpb_log_hint("a line is \"node1 slots=4\", \"node1:4\" or \"node1\"");
        st = DPB_ERR_USAGE;
    }
    dpb_str_release(&text);
    if (st < 0)
        dpb_world_hosts_release(hosts);
    else
        warn_of_mixture(&r);
    return st;
}

void dpb_world_hosts_release(struct dpb_world_hosts *hosts)
{
    free(hosts->items);
    *hosts = (struct dpb_world_hosts){0};
}
