/* Machine profiles: reading, and the tables behind it. */
#include "dpb_machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"
#include "dpb_yaml.h"
#include "machine_private.h"

/* ---- figures ---- */

const struct figure_row figure_rows[DPB_FIGURE_COUNT] = {
#define FIGURE_ROW(name, key, unit, least, most, help)                                             \
    [DPB_FIGURE_##name] = {key, UNIT_##unit, least, most, help},
        DPB_FIGURE_MAP(FIGURE_ROW)
#undef FIGURE_ROW
};

const char *dpb_figure_key(enum dpb_figure_id id)
{
    return figure_rows[id].key;
}

const char *dpb_figure_help(enum dpb_figure_id id)
{
    return figure_rows[id].help;
}

double dpb_machine_value(const struct dpb_machine *machine, enum dpb_figure_id id, double otherwise)
{
    return isnan(machine->figure[id].value) ? otherwise : machine->figure[id].value;
}

bool dpb_machine_has(const struct dpb_machine *machine, enum dpb_figure_id id)
{
    return !isnan(machine->figure[id].value);
}

/* ---- numbers with units ---- */

static const struct scale {
    const char *unit;
    double factor;
} flops_scales[] = {{"GFLOPS", 1e9}, {"TFLOPS", 1e12}, {"PFLOPS", 1e15}};

static bool with_scale(const char *text, const char *unit, double factor, double *value)
{
    const size_t length = strlen(text), unit_length = strlen(unit);
    char number[64];

    if (length <= unit_length || length - unit_length >= sizeof(number) ||
        strcmp(text + length - unit_length, unit) != 0)
        return false;
    snprintf(number, sizeof(number), "%.*s", (int)(length - unit_length), text);
    if (dpb_parse_f64(number, value, NULL) != DPB_OK)
        return false;
    *value *= factor;
    return true;
}

static dpb_status parse_flops(const char *text, double *value, char *why)
{
    for (size_t i = 0; i < sizeof(flops_scales) / sizeof(flops_scales[0]); i++)
        if (with_scale(text, flops_scales[i].unit, flops_scales[i].factor, value))
            return DPB_OK;
    snprintf(why, DPB_WHY_BYTES, "a rate of flops is a number with GFLOPS, TFLOPS or PFLOPS");
    return DPB_ERR_USAGE;
}

dpb_status machine_parse_number(enum figure_unit unit, const char *text, double *value,
                                char why[DPB_WHY_BYTES])
{
    int64_t whole;

    switch (unit) {
    case UNIT_SIZE:
        DPB_TRY(dpb_parse_size(text, &whole, why));
        *value = (double)whole;
        return DPB_OK;
    case UNIT_TIME:
        if (with_scale(text, "h", 3600, value))
            return DPB_OK;
        DPB_TRY(dpb_parse_duration(text, &whole, why));
        *value = (double)whole * 1e-9;
        return DPB_OK;
    case UNIT_RATE:
        return dpb_parse_rate(text, value, why);
    case UNIT_SHARE:
    case UNIT_SHARE0:
        return dpb_parse_ratio(text, value, why);
    case UNIT_COUNT:
        DPB_TRY(dpb_parse_i64(text, &whole, why));
        *value = (double)whole;
        return DPB_OK;
    case UNIT_FLOPS:
        return parse_flops(text, value, why);
    case UNIT_WATT:
        snprintf(why, DPB_WHY_BYTES, "a power is a number with W");
        return with_scale(text, "W", 1, value) ? DPB_OK : DPB_ERR_USAGE;
    case UNIT_PRICE:
        snprintf(why, DPB_WHY_BYTES, "a price is a number with USD/h");
        return with_scale(text, "USD/h", 1, value) ? DPB_OK : DPB_ERR_USAGE;
    }
    return DPB_ERR_INTERNAL;
}

static void number_text(double value, const char *unit, struct dpb_str *text)
{
    char number[DPB_UNIT_TEXT_BYTES];

    dpb_format_f64(value, number, sizeof(number));
    dpb_str_appendf(text, "%s%s", number, unit);
}

/* Memories are sold in GB, of 10^9. */
static void size_text(double bytes, struct dpb_str *text)
{
    char whole[DPB_UNIT_TEXT_BYTES];

    if (fmod(bytes, 1e9) == 0) {
        number_text(bytes / 1e9, "GB", text);
        return;
    }
    dpb_format_size((int64_t)bytes, whole, sizeof(whole));
    dpb_str_append(text, whole);
}

static void time_text(double seconds, struct dpb_str *text)
{
    char whole[DPB_UNIT_TEXT_BYTES];

    dpb_format_duration((int64_t)(seconds * 1e9 + 0.5), whole, sizeof(whole));
    dpb_str_append(text, whole);
}

void dpb_figure_text(enum dpb_figure_id id, double value, struct dpb_str *text)
{
    switch (figure_rows[id].unit) {
    case UNIT_SIZE:
        size_text(value, text);
        break;
    case UNIT_TIME:
        time_text(value, text);
        break;
    case UNIT_RATE:
        /* Networks are sold in bits, memories in bytes. */
        if (id == DPB_FIGURE_NIC_RATE)
            number_text(value * 8 / 1e9, "Gbps", text);
        else
            number_text(value / 1e9, "GB/s", text);
        break;
    case UNIT_FLOPS:
        number_text(value / 1e12, "TFLOPS", text);
        break;
    case UNIT_WATT:
        number_text(value, "W", text);
        break;
    case UNIT_PRICE:
        number_text(value, "USD/h", text);
        break;
    case UNIT_SHARE:
    case UNIT_SHARE0:
    case UNIT_COUNT:
        number_text(value, "", text);
        break;
    }
}

/* ---- release ---- */

static void figure_release(struct dpb_figure *figure)
{
    free(figure->source);
    free(figure->date);
}

static void share_release(struct dpb_machine_share *share)
{
    free(share->size);
    free(share->share);
    free(share->source);
}

void dpb_machine_release(struct dpb_machine *machine)
{
    for (int i = 0; i < DPB_FIGURE_COUNT; i++)
        figure_release(&machine->figure[i]);
    for (int i = 0; i < machine->curve_count; i++) {
        free(machine->curves[i].collective);
        free(machine->curves[i].source);
        free(machine->curves[i].bytes);
        free(machine->curves[i].seconds);
    }
    share_release(&machine->flop_share);
    share_release(&machine->bytes_share);
    free(machine->curves);
    free(machine->name);
    free(machine->summary);
    free(machine->accelerator);
    free(machine->file);
    *machine = (struct dpb_machine){0};
}

/* ---- out again ---- */

static const char *unit_of_json(enum figure_unit unit)
{
    static const char *const text[] = {
            [UNIT_SIZE] = "bytes", [UNIT_RATE] = "bytes_per_s", [UNIT_FLOPS] = "flop_per_s",
            [UNIT_TIME] = "s",     [UNIT_SHARE] = "ratio",      [UNIT_SHARE0] = "ratio",
            [UNIT_COUNT] = "",     [UNIT_WATT] = "W",           [UNIT_PRICE] = "USD/h",
    };

    return text[unit];
}

static dpb_json *figure_json(const struct dpb_machine *machine, enum dpb_figure_id id)
{
    const struct dpb_figure *figure = &machine->figure[id];
    dpb_json *json = dpb_json_object();
    struct dpb_str text = {0};

    dpb_figure_text(id, figure->value, &text);
    dpb_json_set_string(json, "key", dpb_figure_key(id));
    dpb_json_set_real(json, "value", figure->value);
    dpb_json_set_string(json, "unit", unit_of_json(figure_rows[id].unit));
    dpb_json_set_string(json, "text", text.text);
    dpb_json_set_bool(json, "assumed", figure->is_assumed);
    dpb_json_set_string(json, "source", figure->source);
    dpb_json_set_string(json, "date", figure->date);
    dpb_str_release(&text);
    return json;
}

static dpb_json *curve_json(const struct dpb_machine_curve *curve)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "collective", curve->collective);
    dpb_json_set_int(json, "ranks", curve->ranks);
    dpb_json_set_int(json, "nodes", curve->nodes);
    dpb_json_set_string(json, "source", curve->source);
    dpb_json_set(json, "bytes", dpb_json_reals(curve->bytes, (size_t)curve->count));
    dpb_json_set(json, "s", dpb_json_reals(curve->seconds, (size_t)curve->count));
    return json;
}

dpb_json *dpb_machine_json(const struct dpb_machine *machine)
{
    dpb_json *json = dpb_json_object(), *figures = dpb_json_array(), *curves = dpb_json_array();

    dpb_json_set_string(json, "name", machine->name);
    dpb_json_set_string(json, "summary", machine->summary);
    dpb_json_set_string(json, "accelerator", machine->accelerator);
    dpb_json_set_int(json, "accelerators_per_node", machine->accelerators_per_node);
    dpb_json_set_string(json, "file", machine->file);
    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        if (dpb_machine_has(machine, id))
            dpb_json_append(figures, figure_json(machine, id));
    for (int c = 0; c < machine->curve_count; c++)
        dpb_json_append(curves, curve_json(&machine->curves[c]));
    dpb_json_set(json, "figures", figures);
    dpb_json_set(json, "curves", curves);
    return json;
}

/* A text in single quotes. */
static void quoted(const char *value, struct dpb_str *text)
{
    dpb_str_append(text, "'");
    for (const char *c = value ? value : ""; *c; c++)
        dpb_str_appendf(text, *c == '\'' ? "''" : "%c", *c);
    dpb_str_append(text, "'");
}

static void write_figure(const struct dpb_machine *machine, enum dpb_figure_id id,
                         struct dpb_str *text)
{
    const struct dpb_figure *figure = &machine->figure[id];

    dpb_str_appendf(text, "%s: {value: ", dpb_figure_key(id));
    dpb_figure_text(id, figure->value, text);
    dpb_str_append(text, figure->is_assumed ? ", assumed: " : ", source: ");
    quoted(figure->source, text);
    if (figure->date) {
        dpb_str_append(text, ", date: ");
        quoted(figure->date, text);
    }
    dpb_str_append(text, "}\n");
}

static void write_points(const double *a, const double *b, int count, bool is_curve,
                         struct dpb_str *text)
{
    dpb_str_append(text, "[");
    for (int i = 0; i < count; i++) {
        dpb_str_append(text, i > 0 ? ", [" : "[");
        number_text(a[i], ", ", text);
        if (is_curve)
            time_text(b[i], text);
        else
            number_text(b[i], "", text);
        dpb_str_append(text, "]");
    }
    dpb_str_append(text, "]");
}

static void write_share(const char *key, const struct dpb_machine_share *share,
                        struct dpb_str *text)
{
    if (share->count == 0)
        return;
    dpb_str_appendf(text, "%s: {source: ", key);
    quoted(share->source, text);
    dpb_str_append(text, ", points: ");
    write_points(share->size, share->share, share->count, false, text);
    dpb_str_append(text, "}\n");
}

void dpb_machine_write(const struct dpb_machine *machine, struct dpb_str *text)
{
    dpb_str_append(text, "version: 1\nname: ");
    quoted(machine->name, text);
    dpb_str_append(text, "\nsummary: ");
    quoted(machine->summary, text);
    dpb_str_append(text, "\naccelerator: ");
    quoted(machine->accelerator, text);
    dpb_str_appendf(text, "\nkind: %s\naccelerators-per-node: %d\n",
                    machine->is_cpu ? "cpu" : "gpu", machine->accelerators_per_node);
    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        if (dpb_machine_has(machine, id))
            write_figure(machine, id, text);
    write_share("compute.curve", &machine->flop_share, text);
    write_share("memory-rate.curve", &machine->bytes_share, text);
    if (machine->curve_count > 0)
        dpb_str_append(text, "curves:\n");
    for (int c = 0; c < machine->curve_count; c++) {
        const struct dpb_machine_curve *curve = &machine->curves[c];

        dpb_str_appendf(text,
                        "  - {collective: %s, ranks: %d, nodes: %d, source: ", curve->collective,
                        curve->ranks, curve->nodes);
        quoted(curve->source, text);
        dpb_str_append(text, ",\n     points: ");
        write_points(curve->bytes, curve->seconds, curve->count, true, text);
        dpb_str_append(text, "}\n");
    }
}
