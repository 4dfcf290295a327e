/* dpbench list machines: the machines that runs are planned on, and all that is known of one. */
#include "list_machines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_cli.h"
#include "dpb_log.h"
#include "dpb_machine.h"
#include "dpb_units.h"

/* ---- all of them ---- */

/* "8 x 200Gbps", "300GB/s", or "-". */
static void link_text(const struct dpb_machine *machine, enum dpb_figure_id nics,
                      enum dpb_figure_id rate, struct dpb_str *text)
{
    if (!dpb_machine_has(machine, rate)) {
        dpb_str_append(text, "-");
        return;
    }
    if (nics != rate)
        dpb_str_appendf(text, "%.0f x ", dpb_machine_value(machine, nics, 1));
    dpb_figure_text(rate, dpb_machine_value(machine, rate, 0), text);
}

static void print_row(const struct dpb_machine *machine)
{
    const struct dpb_figure *price = &machine->figure[DPB_FIGURE_PRICE];
    struct dpb_str memory = {0}, inside = {0}, between = {0}, cost = {0};

    dpb_figure_text(DPB_FIGURE_MEMORY, dpb_machine_value(machine, DPB_FIGURE_MEMORY, 0), &memory);
    link_text(machine, DPB_FIGURE_INSIDE_RATE, DPB_FIGURE_INSIDE_RATE, &inside);
    link_text(machine, DPB_FIGURE_NICS, DPB_FIGURE_NIC_RATE, &between);
    if (dpb_machine_has(machine, DPB_FIGURE_PRICE))
        dpb_figure_text(DPB_FIGURE_PRICE, price->value, &cost);
    else
        dpb_str_append(&cost, "-");
    printf("%-16s  %3d x %-18s  %8s  %10s  %12s  %6d  %12s  %s\n", machine->name,
           machine->accelerators_per_node, machine->accelerator, memory.text, inside.text,
           between.text, machine->curve_count, cost.text, price->date ? price->date : "-");
    dpb_str_release(&memory);
    dpb_str_release(&inside);
    dpb_str_release(&between);
    dpb_str_release(&cost);
}

static dpb_status list_all(bool json)
{
    dpb_json *list = dpb_json_array();
    dpb_status st = DPB_OK;

    if (!json)
        printf("%-16s  %-24s  %8s  %10s  %12s  %6s  %12s  %s\n", "machine", "a node has", "memory",
               "inside", "between", "curves", "price", "of");
    for (size_t i = 0; i < dpb_machine_builtin_count(); i++) {
        struct dpb_machine machine;

        DPB_TRY_GOTO(st, dpb_machine_find(dpb_machine_builtin_name(i), &machine), out);
        if (json)
            dpb_json_append(list, dpb_machine_json(&machine));
        else
            print_row(&machine);
        dpb_machine_release(&machine);
    }
    if (json)
        return dpb_json_print(list);
    printf("\ninside: link of an accelerator in its node. between: network cards of a node. "
           "curves: "
           "measured\ncollectives. price: of one accelerator. All figures with their sources: "
           "dpbench list machines NAME;\na machine of your own is a file (docs/machines.md), made "
           "from measurements by dpbench calibrate.\n");
out:
    dpb_json_free(list);
    return st;
}

/* ---- one of them ---- */

static void print_figure(const struct dpb_machine *machine, enum dpb_figure_id id)
{
    const struct dpb_figure *figure = &machine->figure[id];
    struct dpb_str value = {0};

    dpb_figure_text(id, figure->value, &value);
    printf("%-22s  %14s  %-8s  %s%s%s\n", dpb_figure_key(id), value.text,
           figure->is_assumed ? "assumed" : "source", figure->source, figure->date ? ", " : "",
           figure->date ? figure->date : "");
    dpb_str_release(&value);
}

static void print_curve(const struct dpb_machine_curve *curve)
{
    char least[DPB_UNIT_TEXT_BYTES], most[DPB_UNIT_TEXT_BYTES];

    dpb_human_size(curve->bytes[0], 3, least, sizeof(least));
    dpb_human_size(curve->bytes[curve->count - 1], 3, most, sizeof(most));
    printf("%-22s  %4d ranks, %d node%s, %d size%s", curve->collective, curve->ranks, curve->nodes,
           curve->nodes == 1 ? "" : "s", curve->count, curve->count == 1 ? "" : "s");
    if (curve->count > 1)
        printf(" from %s to %s", least, most);
    else
        printf(" (%s)", least);
    printf("; %s\n", curve->source);
}

static void print_shares(const char *what, const struct dpb_machine_share *share)
{
    if (share->count > 0)
        printf("%-22s  %d sizes; %s\n", what, share->count, share->source);
}

/* Figures that nothing is known of: what takes their place is said by docs/machines.md. */
static void print_absent(const struct dpb_machine *machine)
{
    bool is_first = true;

    for (int id = 0; id < DPB_FIGURE_COUNT; id++) {
        if (dpb_machine_has(machine, id))
            continue;
        printf("%s%s", is_first ? "\nnot given: " : ", ", dpb_figure_key(id));
        is_first = false;
    }
    if (!is_first)
        printf("\n");
}

static void print_machine(const struct dpb_machine *machine)
{
    printf("%s: %s\n%d x %s (%s) in a node\n\n", machine->name, machine->summary,
           machine->accelerators_per_node, machine->accelerator, machine->is_cpu ? "cpu" : "gpu");
    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        if (dpb_machine_has(machine, id))
            print_figure(machine, id);
    print_shares("compute.curve", &machine->flop_share);
    print_shares("memory-rate.curve", &machine->bytes_share);
    for (int c = 0; c < machine->curve_count; c++)
        print_curve(&machine->curves[c]);
    print_absent(machine);
}

dpb_status list_machines(const char *name, bool json)
{
    struct dpb_machine machine;
    dpb_status st = DPB_OK;

    if (!name)
        return list_all(json);
    DPB_TRY(dpb_machine_find(name, &machine));
    if (json)
        st = dpb_json_print(dpb_machine_json(&machine));
    else
        print_machine(&machine);
    dpb_machine_release(&machine);
    return st;
}
