/* The targets that a sweep was given, judged by its records. */
#include "dpb_cli.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_gate_set.h"
#include "dpb_str.h"

#define TARGETS_FILE "targets.yaml" /* in the run's folder, so that a resumed run is judged too */

dpb_status dpb_run_targets_keep(const char *folder, const struct dpb_sweep_file *file)
{
    struct dpb_str text = {0};
    char *path = dpb_path_join(folder, TARGETS_FILE);
    dpb_status st = DPB_OK;

    for (size_t i = 0; i < file->target_count; i++)
        dpb_str_appendf(&text, "%s: \"%s\"\n", file->targets[i].metric, file->targets[i].rule);
    if (!path || text.failed)
        st = DPB_ERR_NO_MEMORY;
    else if (text.length > 0)
        st = dpb_file_write_atomic(path, text.text, text.length);
    free(path);
    dpb_str_release(&text);
    return st;
}

static dpb_status judge(const char *folder, const char *path, struct dpb_run_targets *targets)
{
    struct dpb_gate_set set = {.price = NAN};
    dpb_status st;

    DPB_TRY(dpb_targets_read(path, &targets->targets));
    DPB_TRY_GOTO(st, dpb_gate_set_read(folder, DPB_GATE_SIDE_ALL, targets->targets.price, &set),
                 out);
    DPB_TRY_GOTO(st, dpb_targets_judge(&targets->targets, &set, NULL, &targets->evidence), out);
    targets->are_judged = true;
out:
    dpb_gate_set_release(&set);
    return st;
}

dpb_status dpb_run_targets_judge(const char *folder, struct dpb_run_targets *targets)
{
    char *path = dpb_path_join(folder, TARGETS_FILE);
    dpb_status st = path ? DPB_OK : DPB_ERR_NO_MEMORY;

    *targets = (struct dpb_run_targets){.targets = {.price = NAN}};
    if (path && access(path, F_OK) == 0)
        st = judge(folder, path, targets);
    free(path);
    return st;
}

void dpb_run_targets_release(struct dpb_run_targets *targets)
{
    dpb_evidence_release(&targets->evidence);
    dpb_targets_release(&targets->targets);
}
