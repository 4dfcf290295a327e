#include "dpb_host.h"

#include <hwloc.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <xxhash.h>

#include "build_info.h"

/* Only these reach a record: a whole environment would carry secrets. */
static const char *const environment_prefixes[] = {"OMP_",      "KMP_",   "DNNL_", "ONEDNN_",
                                                   "OPENBLAS_", "SLURM_", "OMPI_", "PMI_",
                                                   "NCCL_",     "CUDA_"};

/* Nor do these, whatever they begin with: SLURM_JWT is a token that logs its reader in. */
static const char *const secret_words[] = {"JWT",  "TOKEN", "SECRET",    "PASSWORD",
                                           "PASS", "KEY",   "CREDENTIAL"};

extern char **environ;

int dpb_host_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    int cores = CPU_COUNT(&set);
    return cores < 1 ? 1 : cores;
}

static bool is_secret(const char *name)
{
    for (size_t i = 0; i < sizeof(secret_words) / sizeof(char *); i++)
        if (strstr(name, secret_words[i]))
            return true;
    return false;
}

static dpb_json *environment_json(void)
{
    dpb_json *json = dpb_json_object();
    for (char **e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        for (size_t i = 0; equals && i < sizeof(environment_prefixes) / sizeof(char *); i++) {
            if (strncmp(*e, environment_prefixes[i], strlen(environment_prefixes[i])) != 0)
                continue;
            char name[128];
            snprintf(name, sizeof(name), "%.*s", (int)(equals - *e), *e);
            if (!is_secret(name))
                dpb_json_set_string(json, name, equals + 1);
        }
    }
    return json;
}

/* The value of the first `key: value` line of a file; "" when there is none. */
static void file_value(const char *path, const char *key, char separator, char *text,
                       size_t text_bytes)
{
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    char line[512];
    while (file && fgets(line, sizeof(line), file)) {
        char *at = strchr(line, separator);
        if (strncmp(line, key, strlen(key)) != 0 || !at)
            continue;
        for (at++; *at == ' ' || *at == '\t' || *at == '"'; at++)
            ;
        at[strcspn(at, "\"\n")] = '\0';
        snprintf(text, text_bytes, "%s", at);
        break;
    }
    if (file)
        fclose(file);
}

dpb_json *dpb_host_json(void)
{
    dpb_json *json = dpb_json_object();
    char text[512];
    if (gethostname(text, sizeof(text)) != 0)
        text[0] = '\0';
    text[sizeof(text) - 1] = '\0';
    dpb_json_set_string(json, "name", text);
    file_value("/proc/cpuinfo", "model name", ':', text, sizeof(text));
    dpb_json_set_string(json, "cpu_model", text);
    dpb_json_set_int(json, "cores", dpb_host_cores());
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0) {
            dpb_json_set_int(json, "packages",
                             hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
            dpb_json_set_int(json, "numa_nodes",
                             hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
        }
        hwloc_topology_destroy(topology);
    }
    dpb_json_set_int(json, "memory_bytes",
                     (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    struct utsname name;
    dpb_json_set_string(json, "kernel", uname(&name) == 0 ? name.release : "");
    file_value("/etc/os-release", "PRETTY_NAME", '=', text, sizeof(text));
    dpb_json_set_string(json, "os", text);
    dpb_json_set(json, "environment", environment_json());
    return json;
}

void dpb_host_fingerprint(const dpb_json *host, const dpb_json *device, char text[17])
{
    struct dpb_str key = {0};
    int64_t memory = dpb_json_as_int(dpb_json_get(host, "memory_bytes"), 0);
    dpb_str_appendf(&key, "%s|%" PRId64 "|%" PRId64 "|%s|%s|%s",
                    dpb_json_as_string(dpb_json_get(host, "cpu_model"), ""),
                    dpb_json_as_int(dpb_json_get(host, "cores"), 0), memory >> 30,
                    dpb_json_as_string(dpb_json_get(host, "kernel"), ""),
                    dpb_json_as_string(dpb_json_get(device, "name"), ""),
                    dpb_json_as_string(dpb_json_get(device, "isa"), ""));
    snprintf(text, 17, "%016llx", (unsigned long long)XXH3_64bits(key.text, key.length));
    dpb_str_release(&key);
}

dpb_json *dpb_tool_json(void)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "version", DPB_BUILD_VERSION);
    dpb_json_set_string(json, "git_sha", DPB_BUILD_GIT_SHA);
    dpb_json_set_bool(json, "dirty", DPB_BUILD_DIRTY);
    dpb_json *build = dpb_json_object();
    dpb_json_set_string(build, "type", DPB_BUILD_TYPE);
    dpb_json_set_string(build, "compiler", DPB_BUILD_COMPILER);
    dpb_json_set_string(build, "flags", DPB_BUILD_FLAGS);
    dpb_json_set(json, "build", build);
    return json;
}

void dpb_tool_version_long(char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s (%.12s%s)", DPB_BUILD_VERSION, DPB_BUILD_GIT_SHA,
             DPB_BUILD_DIRTY ? ", dirty" : "");
}
