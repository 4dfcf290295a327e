/* The command line of one verb, through glibc's argp. The option array comes from the rows; argp
 * neither prints nor exits, so every message is ours. */
#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dpb_log.h"
#include "option_private.h"

#define KEY_HELP 'h'
/* Keys above the characters, which argp takes for short flags: FIRST_KEY + index in `rows`. */
#define FIRST_KEY 0x10000

struct parsing {
    const struct dpb_command *command;
    const struct dpb_option_set *set;
    void *config;
    struct dpb_command_line line;
    const struct dpb_option **rows; /* one per name: the command's own, then the experiment's */
    bool *given;
    size_t own_count, row_count;
    struct argp_option *options;
    dpb_status status; /* of the first mistake; parsing goes on, to find the others */
};

static bool is_own(const struct parsing *parsing, size_t index)
{
    return index < parsing->own_count;
}

/* Flags of a command stand alone; a bool of an experiment is given on or off. */
static bool takes_value(const struct parsing *parsing, size_t index)
{
    return !is_own(parsing, index) || parsing->rows[index]->type != DPB_OPT_BOOL;
}

static bool has_row(const struct parsing *parsing, const char *name, size_t length)
{
    size_t i;

    for (i = 0; i < parsing->row_count; i++) {
        if (strlen(parsing->rows[i]->name) == length &&
            strncmp(parsing->rows[i]->name, name, length) == 0)
            return true;
    }
    return false;
}

static dpb_status collect_rows(struct parsing *parsing)
{
    const struct dpb_option_table *own = parsing->command->table;
    struct dpb_option_walk walk = {0};
    const struct dpb_option *row;
    size_t most = own ? own->row_count : 0, i;

    while (parsing->command->takes_experiment && dpb_option_next(parsing->set, NULL, &walk, NULL))
        most++;
    parsing->rows = calloc(most + 1, sizeof(*parsing->rows));
    parsing->given = calloc(most + 1, sizeof(*parsing->given));
    parsing->options = calloc(most + 2, sizeof(*parsing->options));
    if (!parsing->rows || !parsing->given || !parsing->options)
        return dpb_option_log_no_memory();

    for (i = 0; own && i < own->row_count; i++)
        parsing->rows[parsing->row_count++] = &own->rows[i];
    parsing->own_count = parsing->row_count;
    walk = (struct dpb_option_walk){0};
    while (parsing->command->takes_experiment &&
           (row = dpb_option_next(parsing->set, NULL, &walk, NULL))) {
        if (!has_row(parsing, row->name, strlen(row->name)))
            parsing->rows[parsing->row_count++] = row;
    }

    for (i = 0; i < parsing->row_count; i++) {
        struct argp_option *option = &parsing->options[i];

        row = parsing->rows[i];
        option->name = row->name;
        option->key = is_own(parsing, i) && row->short_flag ? row->short_flag : FIRST_KEY + (int)i;
        option->arg = takes_value(parsing, i) ? dpb_option_metavar(row) : NULL;
        option->doc = row->help;
    }
    parsing->options[i].name = "help";
    parsing->options[i].key = KEY_HELP;
    parsing->options[i].doc = "show this help";
    return DPB_OK;
}

static dpb_status mistake(struct parsing *parsing, dpb_status st)
{
    if (st < 0 && parsing->status == DPB_OK)
        parsing->status = st;
    return st;
}

static void hint_help(const struct parsing *parsing)
{
    dpb_log_hint("\"dpbench %s --help\" shows what it takes", parsing->command->name);
}

static dpb_status refuse_unknown(const struct parsing *parsing, const char *name, size_t length)
{
    const char **names = calloc(parsing->row_count + 1, sizeof(*names));
    char *word = strndup(name, length);
    const char *near = NULL;
    size_t i;

    if (names && word) {
        for (i = 0; i < parsing->row_count; i++)
            names[i] = parsing->rows[i]->name;
        names[i] = "help";
        near = dpb_suggest(word, names, parsing->row_count + 1);
    }
    if (word && dpb_option_find(parsing->set, word, NULL)) {
        dpb_error("option \"--%s\" belongs to an experiment; \"dpbench %s\" runs none", word,
                  parsing->command->name);
        hint_help(parsing);
    } else {
        dpb_error("unknown option \"--%.*s\"", (int)length, name);
        if (near)
            dpb_log_hint("did you mean \"--%s\"? \"dpbench %s --help\" and \"dpbench list "
                         "options\" show all options",
                         near, parsing->command->name);
        else
            dpb_log_hint("\"dpbench %s --help\" and \"dpbench list options\" show all options",
                         parsing->command->name);
    }
    free(names);
    free(word);
    return DPB_ERR_USAGE;
}

static const struct argp_option *option_of(const struct parsing *parsing, const char *name,
                                           size_t length)
{
    const struct argp_option *option;

    for (option = parsing->options; option->name; option++) {
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

/* Say what getopt did not like about the argument `word`; DPB_OK when it sees nothing in it. */
static dpb_status explain_word(const struct parsing *parsing, const char *word)
{
    const struct argp_option *option;
    const char *name = word + 2;
    size_t length = strcspn(name, "=");

    if (strncmp(word, "--", 2) == 0) {
        option = option_of(parsing, name, length);
        if (!option)
            return refuse_unknown(parsing, name, length);
        if (option->arg && !name[length])
            dpb_error("option \"--%s\" needs a value: --%s %s", option->name, option->name,
                      option->arg);
        else if (!option->arg && name[length])
            dpb_error("option \"--%s\" takes no value", option->name);
        else
            return DPB_OK;
        hint_help(parsing);
        return DPB_ERR_USAGE;
    }
    if (word[0] != '-' || !word[1])
        return DPB_OK;
    for (word++; *word; word++) {
        for (option = parsing->options; option->name && option->key != *word; option++)
            ;
        if (!option->name)
            dpb_error("unknown option \"-%c\"", isprint((unsigned char)*word) ? *word : '?');
        else if (option->arg && !word[1])
            dpb_error("option \"-%c\" needs a value: -%c %s", *word, *word, option->arg);
        else if (option->arg)
            return DPB_OK; /* the rest is its value */
        else
            continue;
        hint_help(parsing);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* getopt has stopped. The argument it did not like is the one before `next`, or, within a cluster
 * of short flags, at `next`. */
static dpb_status explain_stop(const struct parsing *parsing, const struct argp_state *state)
{
    int i;

    for (i = state->next - 1; i <= state->next && i < state->argc; i++) {
        if (i >= 1)
            DPB_TRY(explain_word(parsing, state->argv[i]));
    }
    dpb_error("the arguments cannot be understood");
    hint_help(parsing);
    return DPB_ERR_USAGE;
}

static dpb_status take_own(struct parsing *parsing, const struct dpb_option *row, const char *text)
{
    struct dpb_option_complaint complaint;
    struct dpb_option_value value;
    char flag[64];

    snprintf(flag, sizeof(flag), "--%s", row->name);
    /* Mostly a shell variable that is not set; as if it were absent, --resume would start anew. */
    if (text && !text[0]) {
        dpb_error("%s: the value is empty", flag);
        dpb_log_hint("give a value, or leave %s out", flag);
        return DPB_ERR_USAGE;
    }
    if (dpb_option_value_parse(row, parsing->set, text ? text : "on", &value, &complaint) < 0) {
        dpb_option_log(row->name, flag, &complaint);
        return DPB_ERR_USAGE;
    }
    dpb_option_value_store(row, &value, parsing->config);
    return DPB_OK;
}

static dpb_status take_option(struct parsing *parsing, size_t index, const char *text,
                              const struct argp_state *state)
{
    const struct dpb_option *row = parsing->rows[index];
    const char *word = state->argv[state->next - 1];
    char flag[64];

    /* getopt takes a beginning of a name for the name; a script written so would change its
     * meaning with the next option that begins alike. */
    if (text && text == word)
        word = state->argv[state->next - 2];
    if (strncmp(word, "--", 2) == 0 && strcspn(word + 2, "=") < strlen(row->name))
        return refuse_unknown(parsing, word + 2, strcspn(word + 2, "="));

    snprintf(flag, sizeof(flag), "--%s", row->name);
    if (parsing->given[index]) {
        dpb_error("%s: given twice", flag);
        dpb_log_hint(is_own(parsing, index) ? "give it once"
                                            : "give it once; several values are one list, such as "
                                              "1,2,4");
        return DPB_ERR_USAGE;
    }
    parsing->given[index] = true;
    if (is_own(parsing, index))
        return take_own(parsing, row, text);
    return dpb_settings_add(&parsing->line.experiment, parsing->set, row->name, text, flag);
}

static dpb_status take_argument(struct parsing *parsing, const char *text)
{
    struct dpb_command_line *line = &parsing->line;
    size_t most = parsing->command->max_arguments;

    if (most > sizeof(line->arguments) / sizeof(line->arguments[0]))
        most = sizeof(line->arguments) / sizeof(line->arguments[0]);
    if (line->argument_count >= most) {
        dpb_error("unexpected argument \"%s\": \"dpbench %s\" takes %s%zu", text,
                  parsing->command->name, most > 0 ? "at most " : "", most);
        hint_help(parsing);
        return DPB_ERR_USAGE;
    }
    line->arguments[line->argument_count++] = text;
    return DPB_OK;
}

static error_t on_key(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    size_t i;

    switch (key) {
    case KEY_HELP:
        parsing->line.help = true;
        state->next = state->argc; /* the rest does not matter */
        return 0;
    case ARGP_KEY_ARG:
        if (!parsing->line.help)
            mistake(parsing, take_argument(parsing, text));
        return 0;
    case ARGP_KEY_ERROR:
        mistake(parsing, explain_stop(parsing, state));
        return 0;
    default:
        break;
    }
    for (i = 0; i < parsing->row_count; i++) {
        if (parsing->options[i].key == key) {
            mistake(parsing, take_option(parsing, i, text, state));
            return 0;
        }
    }
    return ARGP_ERR_UNKNOWN;
}

/* Word number `index` of "A B...": the argument that is missing. */
static dpb_status refuse_missing(const struct parsing *parsing)
{
    const char *word = parsing->command->arguments;
    size_t index = parsing->line.argument_count, length;

    word += strspn(word, " ");
    length = strcspn(word, " ");
    for (; index > 0 && word[length]; index--) {
        word += length + strspn(word + length, " ");
        length = strcspn(word, " ");
    }
    dpb_error("argument %.*s is missing", (int)length, word);
    dpb_log_hint("usage: dpbench %s %s", parsing->command->name, parsing->command->arguments);
    return DPB_ERR_USAGE;
}

static size_t terminal_width(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        return size.ws_col < 120 ? size.ws_col : 120;
    return 80;
}

static dpb_status print_help(const struct dpb_command *command, const struct dpb_option_set *set)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_command_help(command, set, terminal_width(), &text);

    if (st == DPB_OK)
        fputs(text.text, stdout); /* whether it was written, main() tells */
    dpb_str_release(&text);
    return st;
}

dpb_status dpb_command_line_parse(const struct dpb_command *command,
                                  const struct dpb_option_set *set, int argc, char **argv,
                                  void *command_config, struct dpb_command_line *line)
{
    struct parsing parsing = {.command = command, .set = set, .config = command_config};
    struct argp argp = {.parser = on_key};
    dpb_status st;
    error_t error;

    DPB_TRY_GOTO(st, collect_rows(&parsing), done);
    if (command->table)
        DPB_TRY_GOTO(st, dpb_option_table_defaults(command->table, set, command_config), done);
    argp.options = parsing.options;
    error = argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, NULL,
                       &parsing);
    st = parsing.status;
    if (error == ENOMEM)
        st = dpb_option_log_no_memory();
    else if (error && st == DPB_OK)
        st = DPB_ERR_USAGE;
    if (st == DPB_OK && parsing.line.help)
        st = print_help(command, set);
    else if (st == DPB_OK && parsing.line.argument_count < command->min_arguments)
        st = refuse_missing(&parsing);

done:
    free(parsing.rows);
    free(parsing.given);
    free(parsing.options);
    if (st == DPB_OK)
        *line = parsing.line;
    else
        dpb_settings_release(&parsing.line.experiment);
    return st;
}
