#include "content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_units.h"
#include "headline.h"
#include "view.h"

#define HOSTS_NAMED_MAX 8

static void take_paragraph(struct dpb_document *document, struct dpb_str *text)
{
    if (text->failed)
        document->failed = true;
    else if (text->length > 0)
        dpb_document_paragraph(document, text->text);
    dpb_str_release(text);
}

/* ---- how it was obtained ---- */

enum how {
    MEASURED,
    EMULATED,
    SIMULATED
};

static enum how how_of(const struct dpb_cell_summary *cell)
{
    return cell->simulated ? SIMULATED : cell->emulated ? EMULATED : MEASURED;
}

static size_t count_how(const struct dpb_summary *summary, enum how how)
{
    size_t count = 0, i;

    for (i = 0; i < summary->cell_count; i++) {
        if (summary->cells[i].repeats_ok > 0 && how_of(&summary->cells[i]) == how)
            count++;
    }
    return count;
}

/* The links of the emulated cells, each once: "25Gbps, 5us; 10Gbps, 5us". */
static void append_links(const struct dpb_summary *summary, struct dpb_str *out)
{
    struct dpb_str seen = {0};
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        struct dpb_str link = {0};

        if (how_of(&summary->cells[i]) == EMULATED && summary->cells[i].repeats_ok > 0)
            dpb_view_link(&summary->cells[i], &link);
        if (link.length > 0 && !(seen.length && strstr(seen.text, link.text))) {
            dpb_str_appendf(&seen, "%s;", link.text);
            dpb_str_appendf(out, "%s%s", out->length ? "; " : "", link.text);
        }
        dpb_str_release(&link);
    }
    dpb_str_release(&seen);
}

static void add_how(const struct dpb_summary *summary, struct dpb_document *document)
{
    size_t measured = count_how(summary, MEASURED), emulated = count_how(summary, EMULATED);
    size_t simulated = count_how(summary, SIMULATED);
    struct dpb_str text = {0}, links = {0};

    if (measured > 0) {
        dpb_str_appendf(&text,
                        "Measured (%zu cell%s): ranks are processes that did the training steps, "
                        "and the clock ran.",
                        measured, measured == 1 ? "" : "s");
        dpb_document_take(document, &text);
    }
    if (emulated > 0) {
        append_links(summary, &links);
        dpb_str_appendf(&text,
                        "Emulated (%zu cell%s, link %s): ranks are processes that did the training "
                        "steps and exchanged the data, and each collective was held back until "
                        "the time it would take on that link. Compute, overlap and bucket effects "
                        "are real; the bandwidth is not this machine's.",
                        emulated, emulated == 1 ? "" : "s",
                        links.length ? links.text : "not recorded");
        dpb_document_take(document, &text);
        dpb_str_release(&links);
    }
    if (simulated > 0) {
        dpb_str_appendf(&text,
                        "Simulated (%zu cell%s): the strategy's own code ran on a virtual clock of "
                        "all ranks; nothing was computed, nothing was sent. Details says which "
                        "machine each cell stands on, and which of its figures are assumed. "
                        "Times within a step are those of rank 0.",
                        simulated, simulated == 1 ? "" : "s");
        dpb_document_take(document, &text);
    }
}

static bool is_all_simulated(const struct dpb_summary *summary)
{
    return count_how(summary, SIMULATED) > 0 && count_how(summary, MEASURED) == 0 &&
           count_how(summary, EMULATED) == 0;
}

static const dpb_json *first_ok(const struct dpb_summary *summary)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        if (summary->cells[i].repeats_ok > 0)
            return summary->cells[i].first;
    }
    return summary->cell_count > 0 ? summary->cells[0].first : NULL;
}

/* Where ranks were that a launcher started, of the cell on most hosts; NULL: on the driver's. */
static const dpb_json *hosts_of(const struct dpb_summary *summary)
{
    const dpb_json *most = NULL;

    for (size_t i = 0; i < summary->cell_count; i++) {
        const dpb_json *hosts = dpb_json_path(summary->cells[i].first, "world/hosts");

        if (dpb_json_size(hosts) > dpb_json_size(most))
            most = hosts;
    }
    return most;
}

/* "; ranks were on 3 hosts: node1, node2, node3" */
static void append_hosts(const struct dpb_summary *summary, struct dpb_str *text)
{
    const dpb_json *hosts = hosts_of(summary);
    const size_t count = dpb_json_size(hosts);

    if (count == 0)
        return;
    dpb_str_appendf(text, "; ranks were on %zu host%s: ", count, count == 1 ? "" : "s");
    for (size_t i = 0; i < count && i < HOSTS_NAMED_MAX; i++)
        dpb_str_appendf(text, "%s%s", i > 0 ? ", " : "",
                        dpb_json_as_string(dpb_json_get(dpb_json_at(hosts, i), "name"), "?"));
    if (count > HOSTS_NAMED_MAX)
        dpb_str_appendf(text, " and %zu more", count - HOSTS_NAMED_MAX);
}

/* "Machine: name, Example CPU, 2 cores, 8 GiB of memory." */
static void add_machine(const struct dpb_summary *summary, struct dpb_document *document)
{
    const dpb_json *host = dpb_json_get(first_ok(summary), "host");
    const char *name = dpb_json_as_string(dpb_json_get(host, "name"), "");
    const char *cpu = dpb_json_as_string(dpb_json_get(host, "cpu_model"), "");
    int64_t cores = dpb_json_as_int(dpb_json_get(host, "cores"), 0);
    int64_t memory = dpb_json_as_int(dpb_json_get(host, "memory_bytes"), 0);
    char memory_text[DPB_UNIT_TEXT_BYTES];
    struct dpb_str text = {0};

    if (!host)
        return;
    if (is_all_simulated(summary))
        dpb_content_simulated_machine(summary, &text);
    else
        dpb_str_append(&text, "Machine: ");
    dpb_str_appendf(&text, "%s%s%s", name, name[0] && cpu[0] ? ", " : "", cpu);
    if (cores > 0)
        dpb_str_appendf(&text, ", %" PRId64 " core%s", cores, cores == 1 ? "" : "s");
    if (memory > 0) {
        dpb_human_size((double)memory, 3, memory_text, sizeof(memory_text));
        dpb_str_appendf(&text, ", %s of memory", memory_text);
    }
    append_hosts(summary, &text);
    dpb_str_append(&text, ".");
    dpb_document_take(document, &text);
}

static void add_availability(const struct dpb_summary *summary, struct dpb_document *document)
{
    double low = INFINITY, high = 0;
    size_t flagged = 0, i;
    struct dpb_str text = {0};

    if (is_all_simulated(summary))
        return;
    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];

        low = fmin(low, cell->availability);
        high = fmax(high, cell->availability);
        flagged += cell->flagged;
    }
    if (isfinite(low)) {
        dpb_str_appendf(&text,
                        "Availability: before and after each cell a probe measured how much of the "
                        "cores was free; of the worst core, at least %.0f %% (the best cell: %.0f "
                        "%%). ",
                        100 * low, 100 * high);
    }
    if (dpb_json_size(hosts_of(summary)) > 1)
        dpb_str_append(&text, "That is the driver's host; the others were not probed. ");
    if (flagged > 0)
        dpb_str_appendf(&text, "%zu of %zu cells are flagged: too little of the machine was free.",
                        flagged, summary->cell_count);
    else
        dpb_str_append(&text, "No cell is flagged for a busy machine.");
    dpb_document_take(document, &text);
}

/* In how many ok records of several ranks the replicas were the same after training. */
static void add_verified(const struct dpb_summary *summary, struct dpb_document *document)
{
    size_t identical = 0, ok = 0, not_compared = 0, i;
    struct dpb_str text = {0};

    for (i = 0; i < summary->records->count; i++) {
        const dpb_json *record = summary->records->items[i];

        if (strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") != 0 ||
            dpb_json_as_int(dpb_json_get(record, "ranks"), 0) < 2)
            continue;
        ok++;
        identical += dpb_json_as_bool(dpb_json_path(record, "verified/replicas_identical"), false);
        not_compared += dpb_json_path(record, "verified/replicas_identical_reason") != NULL;
    }
    if (identical > 0) {
        dpb_str_appendf(&text,
                        "Verified: the replicas were identical to the bit after training in %zu of "
                        "%zu ok records of several ranks",
                        identical, ok);
        if (not_compared > 0)
            dpb_str_appendf(&text, "; in %zu they were not compared, and records.jsonl says why",
                            not_compared);
        dpb_str_append(&text, ".");
        dpb_document_take(document, &text);
    }
}

static const char *config_text(const struct dpb_cell_summary *cell, const char *key)
{
    return dpb_json_as_string(dpb_json_get(dpb_json_get(cell->first, "config"), key), "");
}

/* "strategy ddp", or, of several runs, "strategy ddp/fsdp": each value once; nothing when it is an
 * axis, which the tables have. */
static void append_values(const struct dpb_summary *summary, const char *key, struct dpb_str *text)
{
    bool is_begun = false;

    if (dpb_cell_axis(&summary->cells[0], key))
        return;
    for (size_t i = 0; i < summary->cell_count; i++) {
        const char *value = config_text(&summary->cells[i], key);
        size_t same = 0;

        while (strcmp(config_text(&summary->cells[same], key), value) != 0)
            same++;
        if (same < i || !value[0])
            continue;
        if (is_begun)
            dpb_str_appendf(text, "/%s", value);
        else
            dpb_str_appendf(text, "%s%s %s", text->length ? ", " : "What ran: ", key, value);
        is_begun = true;
    }
}

static void add_setup(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const keys[] = {"workload", "strategy", "device",
                                       "comm",     "data",     "precision"};
    struct dpb_str text = {0};
    size_t i;

    for (i = 0; summary->cell_count > 0 && i < sizeof(keys) / sizeof(keys[0]); i++)
        append_values(summary, keys[i], &text);
    if (text.length > 0) {
        dpb_str_append(&text, ".");
        dpb_document_take(document, &text);
    }
    dpb_str_release(&text);
}

static void add_provenance(const struct dpb_summary *summary,
                           const struct dpb_report_config *config, struct dpb_document *document)
{
    const char *state = dpb_json_as_string(dpb_json_get(config->manifest, "state"), "complete");

    dpb_document_heading(document, 2, "How these numbers were obtained");
    dpb_document_list(document);
    if (strcmp(state, "complete") != 0) {
        struct dpb_str text = {0};

        dpb_str_appendf(&text, "The run is not complete: its state is \"%s\".", state);
        dpb_document_take(document, &text);
    }
    add_setup(summary, document);
    add_how(summary, document);
    add_machine(summary, document);
    add_availability(summary, document);
    add_verified(summary, document);
    dpb_document_cell(document,
                      "A step is over when its last rank is. Step times are medians over "
                      "repeats of the repeats' medians; intervals are 95 % intervals over repeats, "
                      "never over the steps of one repeat.");
}

/* ---- the rest ---- */

static void add_plots(const struct dpb_plot_list *plots, struct dpb_document *document)
{
    size_t i, missing = 0;

    if (plots->count == 0)
        return;
    dpb_document_heading(document, 2, "Plots");
    for (i = 0; i < plots->count; i++) {
        const struct dpb_plot *plot = &plots->items[i];
        struct dpb_str target = {0};

        if (plot->caption.failed || !plot->caption.text)
            continue;
        if (plot->drawn) {
            dpb_str_appendf(&target, "plots/%s.svg", plot->name);
            dpb_document_figure(document, target.failed ? "" : target.text, plot->caption.text);
        } else {
            dpb_document_paragraph(document, plot->caption.text);
            missing += plot->points > 0;
        }
        dpb_str_release(&target);
    }
    if (missing > 0) {
        dpb_document_paragraph(document,
                               "Plots that are named here but not shown could not be drawn; "
                               "install gnuplot and make the report again, or run gnuplot on the "
                               ".gp files in the folder plots.");
    } else {
        dpb_document_paragraph(document, "Data and scripts of the plots lie in the folder plots: "
                                         "NAME.dat and NAME.gp, to be drawn again with gnuplot "
                                         "NAME.gp.");
    }
}

static void add_notes(const dpb_json *notes, struct dpb_document *document)
{
    const dpb_json *note;
    dpb_json_walk walk = {0};

    if (dpb_json_size(notes) == 0)
        return;
    dpb_document_heading(document, 2, "Notes");
    dpb_document_list(document);
    while ((note = dpb_json_next(notes, &walk, NULL)))
        dpb_document_cell(document, dpb_json_as_string(note, ""));
}

static void add_repro(const struct dpb_summary *summary, struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);
    size_t i;

    if (!cells)
        document->failed = true;
    if (!cells || summary->cell_count == 0) {
        free(cells);
        return;
    }
    dpb_document_heading(document, 2, "How to repeat each cell");
    dpb_document_code(document);
    for (i = 0; i < summary->cell_count; i++) {
        struct dpb_str line = {0};

        dpb_str_append(&line, "# ");
        dpb_cell_label(summary, cells[i], &line);
        dpb_document_take(document, &line);
        dpb_document_cell(document, dpb_json_as_string(dpb_json_get(cells[i]->first, "repro"), ""));
    }
    free(cells);
}

static void add_definitions(const char *folder, struct dpb_document *document)
{
    static const char *const definitions[] = {
            "Weak scaling keeps the batch per rank, so n ranks train n times the samples per step; "
            "strong scaling keeps the global batch and divides it.",
            "Throughput X(n) is all samples over all time of the timed steps, on n ranks together.",
            "Scaling efficiency is E(n) = X(n) n0 / (X(n0) n) against the baseline with n0 ranks; "
            "1 (100 %) is ideal. Speed-up is E(n) n. All timed steps of all repeats count; gates "
            "and "
            "targets take run by run without a warm-up of their own, and can differ in the third "
            "digit.",
            "Exposed communication is communication while the rank computes nothing: what a step "
            "gets longer by. Overlapped is the rest of communication.",
            "Idle is time in which a rank neither computes nor communicates.",
            "T_off / T_on is the step time without overlap over that with it, all else equal: "
            "above 1, overlap pays. Comm on/off is how many times as long the same bytes took to "
            "move with overlap, waiting for peers left out: above 1, computation slows them down.",
            "Bus bandwidth is the bytes of an all-reduce times 2 (n - 1) / n over the transfer "
            "time: the rate a link must carry. One rank has none.",
    };
    char *link = dpb_path_join(folder, "../../docs/metrics.md");
    size_t i;

    dpb_document_heading(document, 2, "Definitions in brief");
    dpb_document_list(document);
    for (i = 0; i < sizeof(definitions) / sizeof(definitions[0]); i++)
        dpb_document_cell(document, definitions[i]);
    if (link && access(link, R_OK) == 0)
        dpb_document_link(document, "../../docs/metrics.md", "All of them: docs/metrics.md");
    else
        dpb_document_paragraph(document, "All of them: docs/metrics.md of dpbench.");
    free(link);
}

static void add_environment(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const sections[] = {"tool", "host", "device", "comm", "config"};
    const dpb_json *record = first_ok(summary);
    size_t i;

    if (!record)
        return;
    dpb_document_heading(document, 2, "Environment");
    dpb_document_paragraph(document, "Of the first ok record; the option values are its cell's.");
    dpb_document_table(document, 2, 2);
    dpb_document_cell(document, "key");
    dpb_document_cell(document, "value");
    dpb_document_cell(document, "time_utc");
    dpb_document_cell(document, dpb_json_as_string(dpb_json_get(record, "time_utc"), ""));
    dpb_document_cell(document, "fingerprint");
    dpb_document_cell(document, dpb_json_as_string(dpb_json_get(record, "fingerprint"), ""));
    for (i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
        dpb_content_flatten(dpb_json_get(record, sections[i]), sections[i], document);
}

void dpb_content_build(const struct dpb_summary *summary, const struct dpb_report_config *config,
                       const struct dpb_plot_list *plots, const dpb_json *notes,
                       struct dpb_document *document)
{
    struct dpb_str title = {0}, answer = {0};

    dpb_str_appendf(&title, "dpbench report: %s", config->title ? config->title : "a run");
    dpb_document_heading(document, 1, title.failed ? "dpbench report" : title.text);
    dpb_str_release(&title);
    dpb_headline(summary, &answer);
    if (answer.failed)
        document->failed = true;
    else
        dpb_document_lead(document, answer.text);
    dpb_str_release(&answer);

    add_provenance(summary, config, document);
    if (summary->cell_count > 0) {
        struct dpb_str counts = {0};

        dpb_document_heading(document, 2, "Results");
        dpb_content_results(summary, document);
        dpb_str_appendf(&counts,
                        "%zu cell%s from %zu record%s. A dash stands for a number that does not "
                        "exist; report.json gives the reason of each.",
                        summary->cell_count, summary->cell_count == 1 ? "" : "s",
                        summary->records->count, summary->records->count == 1 ? "" : "s");
        take_paragraph(document, &counts);
        dpb_content_targets(config->evidence, document);
        dpb_content_strategies(summary, document);
        dpb_content_overlap(summary, document);
    }
    add_plots(plots, document);
    if (summary->cell_count > 0) {
        dpb_document_heading(document, 2, "Details");
        dpb_content_breakdown(summary, document);
        dpb_content_nodes(summary, document);
        dpb_content_link(summary, document);
        dpb_content_spread(summary, document);
        dpb_content_tuning(summary, document);
        dpb_content_simulated(summary, document);
    }
    dpb_content_training(summary, document);
    dpb_content_memory(summary, document);
    dpb_content_failures(summary, document);
    add_notes(notes, document);
    add_repro(summary, document);
    add_definitions(config->folder, document);
    add_environment(summary, document);
}
