#include "validate.h"

#include "dpb_log.h"

static dpb_status get_fit(const struct dpb_validate_config *config,
                          const struct validate_table *table, struct validate_fit *fit,
                          struct dpb_str *text)
{
    if (!config->fit)
        return validate_fit_read(fit);
    validate_fit_make(table, fit);
    validate_fit_write(fit, text);
    return DPB_OK;
}

static void predict(struct validate_table *table, const struct validate_fit *fit)
{
    for (size_t i = 0; i < table->count; i++) {
        struct validate_row *row = &table->row[i];

        if (row->exclusion)
            continue;
        row->predicted = validate_efficiency(row, &fit->all);
        row->held_out = validate_efficiency(row, validate_fit_held_out(fit, row->project));
    }
}

dpb_status dpb_validate(const struct dpb_validate_config *config, struct dpb_validation *validation)
{
    struct validate_table table;
    struct validate_fit fit;
    struct dpb_str text = {0};
    dpb_status st;

    *validation = (struct dpb_validation){0};
    DPB_TRY_GOTO(st, validate_table_read(config->file, &table), done);
    DPB_TRY_GOTO(st, validate_simulate(config->registry, &table), done);
    DPB_TRY_GOTO(st, get_fit(config, &table, &fit, &text), done);
    predict(&table, &fit);
    validation->report = validate_report(&table, &fit, &validation->targets_hold);
    if (!dpb_json_ok(validation->report) || text.failed) {
        dpb_error("validate: out of memory for the report");
        st = DPB_ERR_NO_MEMORY;
    }
done:
    if (st < 0) {
        dpb_json_free(validation->report);
        dpb_str_release(&text);
        *validation = (struct dpb_validation){0};
    }
    validation->constants = text.text;
    validate_table_release(&table);
    return st;
}
