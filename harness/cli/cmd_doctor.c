/* dpbench doctor: what this machine is fit for, and what to install for the rest. */
#include "dpb_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dpb_crew.h"
#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_inspect.h"
#include "dpb_log.h"
#include "dpb_module.h"
#include "dpb_probe.h"
#include "dpb_units.h"

#define PROBE_NS  300000000
#define WHY_BYTES 1024

struct doctor_options {
    bool json;
    char device[DPB_OPTION_TEXT_BYTES];
};

static const struct dpb_option rows[] = {
        DPB_ROW_JSON(struct doctor_options, "print the findings as JSON"),
        {.name = "device",
         .type = DPB_OPT_TEXT,
         .offset = offsetof(struct doctor_options, device),
         .default_text = "cpu",
         .category = "What",
         .help = "must be usable, or the exit code is 3; cuda: look at GPUs even if none is seen"},
};

static const struct dpb_option_table table = {"command", "doctor", rows, 2,
                                              sizeof(struct doctor_options)};

struct doctor {
    dpb_json *findings;
    bool json;
};

/* One line, or one value of the JSON, for each finding. */
static void found(void *ctx, enum dpb_finding_level level, const char *what, const char *detail,
                  const char *remedy)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    struct doctor *d = ctx;
    bool good = level == DPB_FINDING_OK;
    dpb_json *finding = dpb_json_object();
    dpb_json_set_string(finding, "what", what);
    dpb_json_set_string(finding, "level", words[level]);
    dpb_json_set_string(finding, "detail", detail);
    dpb_json_set_string(finding, "remedy", good || !remedy ? "" : remedy);
    dpb_json_append(d->findings, finding);
    if (d->json)
        return;
    printf("%-4s  %-16s %s\n", words[level], what, detail);
    if (!good && remedy && remedy[0])
        printf("      %-16s -> %s\n", "", remedy);
}

static void find(struct doctor *d, enum dpb_finding_level level, const char *what,
                 const char *detail, const char *remedy)
{
    found(d, level, what, detail, remedy);
}

/* A device or comm: a failure when it was asked for, else only something to know. */
static bool find_part(struct doctor *d, bool asked, const char *kind, const char *name,
                      dpb_status (*probe)(char *, size_t))
{
    char what[64], why[WHY_BYTES] = "";
    snprintf(what, sizeof(what), "%s %s", kind, name);
    bool good = probe(why, sizeof(why)) >= 0;
    const char *remedy = strcmp(kind, "meter") == 0 ? "records have no energy without it"
                         : strcmp(name, "mpi") == 0 ? "see docs/launchers.md"
                                                    : "see docs/gpu.md";
    find(d,
         good    ? DPB_FINDING_OK
         : asked ? DPB_FINDING_FAIL
                 : DPB_FINDING_WARN,
         what, good ? "available" : why, remedy);
    return good;
}

static dpb_status find_cores(struct doctor *d)
{
    char text[256];
    struct dpb_probe *probe = NULL;
    struct dpb_probe_result result = {0};
    DPB_TRY(dpb_probe_open(NULL, 0, &probe));
    dpb_status st = dpb_probe_run(probe, PROBE_NS, &result);
    dpb_probe_close(probe);
    DPB_TRY(st);
    bool good = result.availability_min >= 0.85;
    snprintf(text, sizeof(text), "%d, of the busiest %.0f %% was available to us, mean %.0f %%",
             result.cores, 100 * result.availability_min, 100 * result.availability_mean);
    find(d, good ? DPB_FINDING_OK : DPB_FINDING_WARN, "cores", text,
         "neighbours: measure when it is quieter");
    return DPB_OK;
}

/* Is a program in PATH? */
static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *at = path ? path : ""; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)length, at, program);
        if (access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static void swallow(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "error: ")) /* the reason becomes the finding */
        snprintf(ctx, 512, "%s", strstr(line, "error: ") + 7);
}

static void find_data(struct doctor *d, const struct dpb_registry *registry)
{
    const struct dpb_model *model = registry->workloads[0]->model(NULL);
    struct dpb_dataset_config config = {
            .kind = dpb_data_kind_text(DPB_DATA_FASHION_MNIST),
            .folder = "",
            .model = model,
    };
    char why[512] = "";
    dpb_dataset *dataset = NULL;
    dpb_log_set_sink(swallow, why);
    dpb_status st = dpb_dataset_open(&config, DPB_SPLIT_TEST, &dataset);
    dpb_log_set_sink(NULL, NULL);
    if (st < 0) {
        find(d, DPB_FINDING_WARN, "data", why,
             "apt-get install dataset-fashion-mnist, or --data synthetic");
        return;
    }
    struct dpb_dataset_info info;
    dpb_dataset_describe(dataset, &info);
    snprintf(why, sizeof(why), "fashion-mnist: %s", info.source);
    find(d, DPB_FINDING_OK, "data", why, NULL);
    dpb_dataset_close(dataset);
}

static void find_space(struct doctor *d)
{
    struct statvfs fs;
    char text[256], size[DPB_UNIT_TEXT_BYTES];
    bool writable = access(".", W_OK) == 0;
    if (statvfs(".", &fs) != 0)
        return;
    double bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    dpb_human_size(bytes, 3, size, sizeof(size));
    snprintf(text, sizeof(text), "%s free here%s", size,
             writable ? "" : ", but no permission to write");
    find(d, bytes > 1e8 && writable ? DPB_FINDING_OK : DPB_FINDING_WARN, "results", text,
         "use -o DIR");
}

static void find_gnuplot(struct doctor *d)
{
    bool there = in_path("gnuplot");
    find(d, there ? DPB_FINDING_OK : DPB_FINDING_WARN, "gnuplot",
         there ? "found: reports have plots" : "not found: reports come without plots",
         "apt-get install gnuplot-nox");
}

/* GPUs: what the module finds, where there is one to look at. */
static void find_gpus(struct doctor *d, bool asked)
{
    const struct dpb_module *module;
    char why[WHY_BYTES] = "";
    bool there = dpb_inspect_has_gpu("");
    if (!there && !asked) {
        find(d, DPB_FINDING_OK, "GPUs", "no NVIDIA GPU on the PCI bus", NULL);
        return;
    }
    if (!there)
        find(d, DPB_FINDING_WARN, "GPUs", "no NVIDIA GPU on the PCI bus",
             "a virtual machine must be given the GPU, a container started with --gpus all");
    if (dpb_module_open(&module, why, sizeof(why)) < 0) {
        find(d, asked ? DPB_FINDING_FAIL : DPB_FINDING_WARN, "module", why,
             "build dpbench where the CUDA toolkit is: docs/gpu.md");
        return;
    }
    find(d, DPB_FINDING_OK, "module", module->build, NULL);
    module->inspect(found, d);
}

static dpb_status check_asked(const struct dpb_registry *registry, const char *device)
{
    if (dpb_registry_device(registry, device))
        return DPB_OK;
    dpb_error("--device: \"%s\" is no device", device);
    dpb_log_hint("`dpbench list devices` names them");
    return DPB_ERR_USAGE;
}

/* Parts of this build; false when the device that was asked for cannot be used. */
static bool find_parts(struct doctor *d, const struct dpb_registry *registry, const char *asked,
                       bool gpus)
{
    bool usable = true;
    for (size_t i = 0; i < registry->device_count; i++) {
        const struct dpb_device_ops *ops = registry->devices[i];
        bool is_asked = strcmp(ops->name, asked) == 0;
        if (is_asked || ops->open || gpus)
            usable &= find_part(d, is_asked, "device", ops->name, ops->probe) || !is_asked;
    }
    for (size_t i = 0; i < registry->comm_count; i++)
        if (registry->comms[i]->open || gpus)
            (void)find_part(d, false, "comm", registry->comms[i]->name, registry->comms[i]->probe);
    for (size_t i = 0; i < registry->meter_count; i++)
        if (registry->meters[i]->open || gpus)
            (void)find_part(d, false, "meter", registry->meters[i]->name,
                            registry->meters[i]->probe);
    return usable;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    (void)line;
    const struct doctor_options *o = options;
    DPB_TRY(check_asked(registry, o->device));
    struct doctor d = {.findings = dpb_json_array(), .json = o->json};
    bool asked_gpu = dpb_registry_device(registry, o->device)->flags & DPB_DEVICE_ACCELERATOR;
    char version[128];
    dpb_tool_version_long(version, sizeof(version));
    find(&d, DPB_FINDING_OK, "dpbench", version, NULL);
    dpb_json *host = dpb_host_json();
    find(&d, DPB_FINDING_OK, "machine", dpb_json_as_string(dpb_json_get(host, "cpu_model"), ""),
         NULL);
    dpb_json_free(host);
    dpb_status st = find_cores(&d);
    dpb_inspect_host("", found, &d);
    find_data(&d, registry);
    find_gnuplot(&d);
    find_space(&d);
    find_gpus(&d, asked_gpu);
    dpb_crew_inspect(found, &d);
    bool usable = find_parts(&d, registry, o->device, asked_gpu || dpb_inspect_has_gpu(""));
    if (o->json)
        DPB_KEEP(st, dpb_json_print(d.findings));
    else
        dpb_json_free(d.findings);
    if (st == DPB_OK && !usable)
        st = DPB_ERR_UNAVAILABLE;
    return st;
}

const struct dpb_verb dpb_verb_doctor = {
        .command = {.name = "doctor",
                    .arguments = "",
                    .summary = "say what this machine is fit for",
                    .table = &table},
        .run = run,
};
