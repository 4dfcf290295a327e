/* dpbench doctor: what this machine is fit for, and what to install for the rest. */
#include "dpb_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_probe.h"
#include "dpb_units.h"

#define PROBE_NS 300000000

struct doctor_options {
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROW_JSON(struct doctor_options, "print the findings as JSON"),
};

static const struct dpb_option_table table = {"command", "doctor", rows, 1,
                                              sizeof(struct doctor_options)};

struct doctor {
    dpb_json *findings;
    bool json;
    bool fit; /* can the default sweep run? */
};

/* One finding: good, or not with what to do about it. `needed`: nothing runs without. */
static void find(struct doctor *d, bool good, bool needed, const char *what, const char *detail)
{
    dpb_json *finding = dpb_json_object();
    dpb_json_set_string(finding, "what", what);
    dpb_json_set_bool(finding, "good", good);
    dpb_json_set_bool(finding, "needed", needed);
    dpb_json_set_string(finding, "detail", detail);
    dpb_json_append(d->findings, finding);
    if (needed && !good)
        d->fit = false;
    if (!d->json)
        printf("%s %-22s %s\n", good ? "✓" : "✗", what, detail);
}

static void find_part(struct doctor *d, const char *kind, const char *name,
                      dpb_status (*probe)(char *, size_t))
{
    char what[64], why[256] = "";
    snprintf(what, sizeof(what), "%s %s", kind, name);
    bool good = probe(why, sizeof(why)) >= 0;
    find(d, good, true, what, good ? "available" : why);
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
    snprintf(text, sizeof(text), "%d, of the busiest %.0f %% was available to us, mean %.0f %%%s",
             result.cores, 100 * result.availability_min, 100 * result.availability_mean,
             result.availability_min < 0.85 ? ": neighbours; measure when it is quieter" : "");
    find(d, result.availability_min >= 0.85, false, "cores", text);
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
        find(d, false, false, "data fashion-mnist", why);
        return;
    }
    struct dpb_dataset_info info;
    dpb_dataset_describe(dataset, &info);
    snprintf(why, sizeof(why), "%s", info.source);
    find(d, true, false, "data fashion-mnist", why);
    dpb_dataset_close(dataset);
}

static void find_space(struct doctor *d)
{
    struct statvfs fs;
    char text[256], size[DPB_UNIT_TEXT_BYTES];
    if (statvfs(".", &fs) != 0)
        return;
    double bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    dpb_human_size(bytes, 3, size, sizeof(size));
    snprintf(text, sizeof(text), "%s free here%s", size,
             access(".", W_OK) == 0 ? "" : ", but no permission to write: use -o DIR");
    find(d, bytes > 1e8 && access(".", W_OK) == 0, false, "results", text);
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    (void)line;
    const struct doctor_options *o = options;
    struct doctor d = {.findings = dpb_json_array(), .json = o->json, .fit = true};
    char version[128];
    dpb_tool_version_long(version, sizeof(version));
    find(&d, true, false, "dpbench", version);
    dpb_json *host = dpb_host_json();
    find(&d, true, false, "machine", dpb_json_as_string(dpb_json_get(host, "cpu_model"), ""));
    dpb_json_free(host);
    dpb_status st = find_cores(&d);
    for (size_t i = 0; i < registry->device_count; i++)
        find_part(&d, "device", registry->devices[i]->name, registry->devices[i]->probe);
    for (size_t i = 0; i < registry->comm_count; i++)
        find_part(&d, "comm", registry->comms[i]->name, registry->comms[i]->probe);
    find_data(&d, registry);
    bool gnuplot = in_path("gnuplot");
    find(&d, gnuplot, false, "gnuplot",
         gnuplot ? "found: reports have plots"
                 : "not found: reports come without plots; install gnuplot-nox");
    find_space(&d);
    if (o->json)
        DPB_KEEP(st, dpb_json_print(d.findings));
    else
        dpb_json_free(d.findings);
    if (st == DPB_OK && !d.fit)
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
