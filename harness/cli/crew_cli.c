/* The options of every verb that launches, and what they make of one. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_str.h"

#define LAUNCHER_CHOICE(name, text, help) {text, name, help},
const struct dpb_choice dpb_launcher_choices[] = {DPB_LAUNCHER_MAP(LAUNCHER_CHOICE){NULL, 0, NULL}};
#undef LAUNCHER_CHOICE

struct crew_alone {
    struct dpb_crew_options crew;
};
static const struct dpb_option crew_rows[] = {DPB_ROWS_CREW(struct crew_alone)};
const struct dpb_option_table dpb_crew_option_table = {
        "command", "run, sweep, comm, verify, tune", crew_rows,
        sizeof(crew_rows) / sizeof(crew_rows[0]), sizeof(struct crew_alone)};

/* All processes of a run must be asked for the same: the words after the program's name. */
static dpb_status hash_command_line(char text[17])
{
    struct dpb_str words = {0};
    dpb_status st = dpb_file_read("/proc/self/cmdline", &words);
    if (st == DPB_OK) {
        const size_t name = words.length > 0 ? strnlen(words.text, words.length) : 0;
        snprintf(text, 17, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(words.text + name, words.length - name));
    }
    dpb_str_release(&words);
    return st;
}

dpb_status dpb_crew_run(const struct dpb_verb *verb, const struct dpb_registry *registry,
                        const struct dpb_command_line *line, const void *options)
{
    const struct dpb_crew_options *crew_options =
            (const void *)((const char *)options + verb->crew_at);
    char hash[17];
    dpb_crew *crew = NULL;
    dpb_status verdict = DPB_OK;
    DPB_TRY(hash_command_line(hash));
    dpb_status st = dpb_crew_open(crew_options, hash, dpb_interrupt_watch(), &crew, &verdict);
    if (st == DPB_END)
        return verdict;
    if (st == DPB_ERR_INTERRUPTED)
        dpb_warn("interrupted: nothing was launched yet");
    DPB_TRY(st);
    st = verb->launch(crew ? dpb_registry_launched() : registry, line, options, crew);
    dpb_crew_close(crew, st);
    return st;
}

dpb_status dpb_crew_check_launches(const dpb_crew *crew, const struct dpb_plan *plan,
                                   size_t launches)
{
    for (size_t i = 0; crew && i < plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[i].config, "experiment");
        DPB_TRY(dpb_crew_check_comm(crew, e->comm, false, launches, (int)e->ranks, (int)e->ranks));
    }
    return DPB_OK;
}

/* 4 of 4, or for a sweep 1,2,4 of 4. */
static void ranks_text(int most, bool sweep, char *text, size_t text_bytes)
{
    struct dpb_str list = {0};
    for (int ranks = 1; sweep && ranks < most; ranks *= 2)
        dpb_str_appendf(&list, "%d,", ranks);
    snprintf(text, text_bytes, "%s%d", list.text ? list.text : "", most);
    dpb_str_release(&list);
}

static bool gives_ranks(const struct dpb_settings *settings)
{
    const struct dpb_setting *ranks = dpb_settings_find(settings, "ranks");
    return ranks && strcmp(ranks->values[0], "auto") != 0;
}

dpb_status dpb_crew_settings(const dpb_crew *crew, const struct dpb_option_set *set,
                             const struct dpb_sweep_file *file, const struct dpb_settings *flags,
                             bool sweep, struct dpb_settings *settings)
{
    const int most = dpb_crew_ranks_max(crew);
    char text[256];
    const bool given =
            gives_ranks(flags) || (file && (gives_ranks(&file->base) || gives_ranks(&file->axes)));
    if (most > 0 && !given) {
        ranks_text(most, sweep, text, sizeof(text));
        DPB_TRY(dpb_settings_add(settings, set, "ranks", text, "--launcher"));
    }
    return dpb_settings_override(settings, flags);
}
