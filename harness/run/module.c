#include "dpb_module.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_str.h"

#define PATH_BYTES 4096

/* A module, and the answer, once known. */
struct shelf {
    const char *file, *remedy;
    bool known;
    const struct dpb_module *module;
    char why[1024]; /* without its beginning, below */
};

static struct shelf cuda = {.file = DPB_MODULE_FILE,
                            .remedy = "build dpbench with the CUDA toolkit"};
/* One for each MPI: their libraries exclude one another. */
static struct shelf mpi[] = {
        [DPB_MPI_OPEN_MPI] = {.file = "libdpbench_openmpi.so",
                              .remedy = "build dpbench with Open MPI (libopenmpi-dev)"},
        [DPB_MPI_MPICH] = {.file = "libdpbench_mpich.so",
                           .remedy = "build dpbench with MPICH (libmpich-dev)"},
};

static const struct dpb_module_host host = {.abi = DPB_MODULE_ABI, .log = {dpb_log, dpb_log_hint}};

/* Where the module may be, one path after the other; false behind the last. */
struct search {
    const char *given; /* what is left of the variable */
    bool is_given;
    int next;
    char program_folder[PATH_BYTES];
};

static void search_begin(struct search *search)
{
    ssize_t length = readlink("/proc/self/exe", search->program_folder, PATH_BYTES - 1);

    search->program_folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(search->program_folder, '/');
    if (slash)
        *slash = '\0';
    search->given = getenv(DPB_MODULE_PATH_VARIABLE);
    search->is_given = search->given && search->given[0];
    search->next = 0;
}

static bool search_next(struct search *search, const char *file, struct dpb_str *path)
{
    static const char *const beside[] = {"", "/../lib/dpbench"};

    dpb_str_release(path);
    if (search->is_given) {
        search->given += strspn(search->given, ":");
        size_t length = strcspn(search->given, ":");
        if (length == 0)
            return false;
        dpb_str_appendf(path, "%.*s/%s", (int)length, search->given, file);
        search->given += length;
    } else {
        if (search->next == 2 || !search->program_folder[0])
            return false;
        dpb_str_appendf(path, "%s%s/%s", search->program_folder, beside[search->next++], file);
    }
    return !path->failed;
}

static bool refuse(struct shelf *at, const char *path, const char *what, int has, int needed)
{
    snprintf(at->why, sizeof(at->why),
             "%s %s %d, and this dpbench needs %d: build both from the same source", path, what,
             has, needed);
    return false;
}

/* Tables of another version than ours have other members. A module may have a comm only. */
static bool accept(struct shelf *at, const char *path, const struct dpb_module *module)
{
    if (module->abi != DPB_MODULE_ABI)
        return refuse(at, path, "is built for module ABI", module->abi, DPB_MODULE_ABI);
    if (module->device && module->device->version != DPB_DEVICE_OPS_VERSION)
        return refuse(at, path, "has a device of version", module->device->version,
                      DPB_DEVICE_OPS_VERSION);
    if (module->comm->version != DPB_COMM_OPS_VERSION)
        return refuse(at, path, "has a comm of version", module->comm->version,
                      DPB_COMM_OPS_VERSION);
    if (module->recorder && module->recorder->version != DPB_RECORDER_OPS_VERSION)
        return refuse(at, path, "has a recorder of version", module->recorder->version,
                      DPB_RECORDER_OPS_VERSION);
    if (module->meter && module->meter->version != DPB_METER_OPS_VERSION)
        return refuse(at, path, "has a meter of version", module->meter->version,
                      DPB_METER_OPS_VERSION);
    return true;
}

static void open_file(struct shelf *at, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    dpb_module_entry_function *entry;

    if (!handle) {
        snprintf(at->why, sizeof(at->why), "%s does not load: %s", path, dlerror());
        return;
    }
    *(void **)&entry = dlsym(handle, DPB_MODULE_ENTRY);
    if (!entry) {
        snprintf(at->why, sizeof(at->why), "%s is no module of dpbench: it has no %s", path,
                 DPB_MODULE_ENTRY);
        return;
    }
    const struct dpb_module *module = entry(&host);
    if (accept(at, path, module))
        at->module = module;
}

static void find(struct shelf *at)
{
    struct search search;
    struct dpb_str path = {0}, tried = {0};

    search_begin(&search);
    while (search_next(&search, at->file, &path)) {
        if (access(path.text, F_OK) == 0) {
            open_file(at, path.text);
            goto out;
        }
        dpb_str_appendf(&tried, "%s%s", tried.length ? ", " : "", path.text);
    }
    snprintf(at->why, sizeof(at->why),
             "%s is not there (tried %s): %s, or set $" DPB_MODULE_PATH_VARIABLE " to its folder",
             at->file, tried.length && !tried.failed ? tried.text : "nothing", at->remedy);
out:
    dpb_str_release(&path);
    dpb_str_release(&tried);
}

static dpb_status take(struct shelf *at, const struct dpb_module **module, char *why,
                       size_t why_bytes)
{
    if (!at->known)
        find(at);
    at->known = true;
    if (!at->module) {
        snprintf(why, why_bytes, "not available here, because %s", at->why);
        return DPB_ERR_UNAVAILABLE;
    }
    *module = at->module;
    return DPB_OK;
}

dpb_status dpb_module_open(const struct dpb_module **module, char *why, size_t why_bytes)
{
    return take(&cuda, module, why, why_bytes);
}

dpb_status dpb_module_open_mpi(const struct dpb_module **module, char *why, size_t why_bytes)
{
    struct dpb_mpi_start start;
    DPB_TRY(dpb_mpi_start_find(&start, why, why_bytes));
    return take(&mpi[start.library], module, why, why_bytes);
}

dpb_status dpb_module_check_mpi(enum dpb_mpi_library library, char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    return take(&mpi[library], &module, why, why_bytes);
}

/* What is not the device needs it first: its reason is the nearer one. */
static dpb_status open_usable(const struct dpb_module **module, char *why, size_t why_bytes)
{
    DPB_TRY(dpb_module_open(module, why, why_bytes));
    return (*module)->device->probe(why, why_bytes);
}

dpb_status dpb_module_probe_device(char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    return open_usable(&module, why, why_bytes);
}

dpb_status dpb_module_probe_comm(char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    DPB_TRY(open_usable(&module, why, why_bytes));
    return module->comm->probe(why, why_bytes);
}

dpb_status dpb_module_probe_recorder(char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    DPB_TRY(open_usable(&module, why, why_bytes));
    return module->recorder->probe(why, why_bytes);
}

dpb_status dpb_module_probe_meter(char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    DPB_TRY(dpb_module_open(&module, why, why_bytes));
    return module->meter->probe(why, why_bytes);
}

dpb_status dpb_module_probe_mpi(char *why, size_t why_bytes)
{
    const struct dpb_module *module;
    DPB_TRY(dpb_module_open_mpi(&module, why, why_bytes));
    return module->comm->probe(why, why_bytes);
}
