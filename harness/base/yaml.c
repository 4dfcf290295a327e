#include "dpb_yaml.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libfyaml.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "option_private.h"
#include "utf8.h"

/* A sweep file needs four levels; the limit keeps the recursion flat. */
#define MAX_DEPTH 16

struct reader {
    struct fy_parser *parser;
    const char *file_name;
    char message[512]; /* libfyaml's first one */
};

const char *dpb_yaml_kind_text(enum dpb_yaml_kind kind)
{
    switch (kind) {
    case DPB_YAML_SCALAR:
        return "a single value";
    case DPB_YAML_LIST:
        return "a list";
    case DPB_YAML_MAP:
        return "a map of keys and values";
    }
    return "a node";
}

void dpb_yaml_release(struct dpb_yaml *node)
{
    size_t i;

    for (i = 0; i < node->count; i++)
        dpb_yaml_release(&node->items[i]);
    free(node->items);
    free(node->text);
    *node = (struct dpb_yaml){0};
}

/* libfyaml gives a message in pieces: one with the place, then the source line and a marker. The
 * first says it all. */
static void keep_message(struct fy_diag *diag, void *user, const char *text, size_t count)
{
    struct reader *reader = user;

    (void)diag;
    if (!reader->message[0])
        snprintf(reader->message, sizeof(reader->message), "%.*s", (int)count, text);
}

/* "<memory-@0x...>:3:1: error: flow sequence without a closing bracket\n" */
static dpb_status log_syntax(const struct reader *reader)
{
    static const char marker[] = ": error: ";
    const char *reason = strstr(reader->message, marker);
    const char *place = reason;
    int line = 1, column = 1;
    size_t length;

    /* back to the second colon before the marker */
    while (place && place > reader->message &&
           sscanf(place, ":%d:%d: error: ", &line, &column) != 2)
        place--;
    reason = reason ? reason + strlen(marker) : reader->message;
    length = strcspn(reason, "\n");
    if (length == 0) {
        reason = "it is no YAML";
        length = strlen(reason);
    }
    dpb_error("%s:%d:%d: %.*s", reader->file_name, line, column, (int)length, reason);
    dpb_log_hint("the file is YAML 1.2; look for a missing bracket, quote or space there");
    return DPB_ERR_USAGE;
}

static dpb_status refuse(const struct reader *reader, const struct dpb_yaml *node,
                         const char *reason)
{
    dpb_error("%s:%d:%d: %s", reader->file_name, node->line, node->column, reason);
    dpb_log_hint("write plain keys, values and lists");
    return DPB_ERR_USAGE;
}

/* The text is good UTF-8 without NUL? libfyaml would stop at the first bad byte without a word. */
static dpb_status check_bytes(const char *text, size_t count, const char *file_name)
{
    int line = 1, column = 1;
    size_t i = 0;

    while (i < count) {
        size_t length = text[i] ? dpb_utf8_length(text + i, count - i) : 0;

        if (length == 0) {
            dpb_error("%s:%d:%d: byte 0x%02x does not belong in a text", file_name, line, column,
                      (unsigned char)text[i]);
            dpb_log_hint("save the file as UTF-8");
            return DPB_ERR_USAGE;
        }
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
        i += length;
    }
    return DPB_OK;
}

/* The next event; NULL with a status at the end and on errors. */
static struct fy_event *next_event(struct reader *reader, dpb_status *st)
{
    struct fy_event *event = fy_parser_parse(reader->parser);

    *st = DPB_OK;
    if (!event)
        *st = fy_parser_get_stream_error(reader->parser) || reader->message[0] ? log_syntax(reader)
                                                                               : DPB_END;
    return event;
}

static bool has_text(struct fy_token *token)
{
    size_t length = 0;

    return token && fy_token_get_text(token, &length) && length > 0;
}

/* One more item at the end of a container, or NULL. */
static struct dpb_yaml *add_item(struct dpb_yaml *node)
{
    struct dpb_yaml *items;

    /* grown at powers of two */
    if ((node->count & (node->count - 1)) == 0) {
        items = realloc(node->items, (node->count ? 2 * node->count : 1) * sizeof(*items));
        if (!items)
            return NULL;
        node->items = items;
    }
    node->items[node->count] = (struct dpb_yaml){0};
    return &node->items[node->count++];
}

static dpb_status read_scalar(const struct reader *reader, struct fy_event *event,
                              struct dpb_yaml *node)
{
    size_t length = 0;
    const char *text = event->scalar.value ? fy_token_get_text(event->scalar.value, &length) : "";

    if (!text)
        return dpb_option_log_no_memory();
    if (event->scalar.value) {
        enum fy_scalar_style style = fy_token_scalar_style(event->scalar.value);

        /* libfyaml's mark is behind the quote */
        node->column -= style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    }
    if (memchr(text, '\0', length))
        return refuse(reader, node, "a text with a NUL character in it");
    node->text = strndup(text, length);
    return node->text ? DPB_OK : dpb_option_log_no_memory();
}

static dpb_status read_node(struct reader *reader, struct fy_event *event, int depth,
                            struct dpb_yaml *node);

static dpb_status read_items(struct reader *reader, int depth, struct dpb_yaml *node)
{
    for (;;) {
        dpb_status st;
        struct fy_event *event = next_event(reader, &st);
        struct dpb_yaml *item;
        bool is_key;

        if (!event)
            return st < 0 ? st : log_syntax(reader);
        if (event->type == FYET_MAPPING_END || event->type == FYET_SEQUENCE_END) {
            fy_parser_event_free(reader->parser, event);
            return DPB_OK;
        }
        is_key = node->kind == DPB_YAML_MAP && node->count % 2 == 0;
        item = add_item(node);
        if (item) {
            /* An empty value has no place of its own: it is blamed on what precedes it. */
            item->line = node->count > 1 ? item[-1].line : node->line;
            item->column = node->count > 1 ? item[-1].column : node->column;
            st = read_node(reader, event, depth, item);
        } else {
            st = dpb_option_log_no_memory();
        }
        fy_parser_event_free(reader->parser, event);
        DPB_TRY(st);
        if (is_key && item->kind != DPB_YAML_SCALAR)
            return refuse(reader, item, "a key must be a plain word");
    }
}

static dpb_status read_node(struct reader *reader, struct fy_event *event, int depth,
                            struct dpb_yaml *node)
{
    const struct fy_mark *mark = fy_event_start_mark(event);

    if (mark) {
        node->line = mark->line + 1;
        node->column = mark->column + 1;
        node->column -= event->type == FYET_ALIAS; /* the mark is behind the '*' */
    }
    if (event->type == FYET_ALIAS || has_text(fy_event_get_anchor_token(event)))
        return refuse(reader, node, "anchors (&) and aliases (*) are not for sweep files");
    if (has_text(fy_event_get_tag_token(event)))
        return refuse(reader, node, "tags (!) are not for sweep files");
    if (depth >= MAX_DEPTH)
        return refuse(reader, node, "nested too deeply");
    switch (event->type) {
    case FYET_SCALAR:
        return read_scalar(reader, event, node);
    case FYET_SEQUENCE_START:
        node->kind = DPB_YAML_LIST;
        return read_items(reader, depth + 1, node);
    case FYET_MAPPING_START:
        node->kind = DPB_YAML_MAP;
        return read_items(reader, depth + 1, node);
    default:
        return refuse(reader, node, "not expected here");
    }
}

static dpb_status read_stream(struct reader *reader, struct dpb_yaml *root)
{
    bool found = false;

    for (;;) {
        dpb_status st;
        struct fy_event *event = next_event(reader, &st);

        if (!event && st < 0)
            return st;
        if (!event)
            break;
        switch (event->type) {
        case FYET_STREAM_START:
        case FYET_STREAM_END:
        case FYET_DOCUMENT_START:
        case FYET_DOCUMENT_END:
            break;
        default:
            if (found) {
                struct dpb_yaml second = {.line = 1, .column = 1};
                const struct fy_mark *mark = fy_event_start_mark(event);

                if (mark) {
                    second.line = mark->line + 1;
                    second.column = mark->column + 1;
                }
                st = refuse(reader, &second, "a second document (---)");
            } else {
                root->line = root->column = 1;
                st = read_node(reader, event, 0, root);
                found = true;
            }
            break;
        }
        fy_parser_event_free(reader->parser, event);
        DPB_TRY(st);
    }
    if (found && (root->kind != DPB_YAML_SCALAR || root->text[0]))
        return DPB_OK;
    dpb_error("%s:1:1: the file is empty", reader->file_name);
    dpb_log_hint("begin with \"version: 1\", or start from a file in bench/sweeps");
    return DPB_ERR_USAGE;
}

dpb_status dpb_yaml_parse(const char *text, size_t count, const char *file_name,
                          struct dpb_yaml *root)
{
    struct reader reader = {.file_name = file_name};
    struct fy_parse_cfg parse_config = {.flags = FYPCF_JSON_NONE | FYPCF_DEFAULT_VERSION_1_2};
    struct fy_diag_cfg diag_config;
    struct fy_diag *diag;
    struct dpb_yaml made = {0};
    dpb_status st;

    DPB_TRY(check_bytes(text, count, file_name));
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    diag_config.output_fn = keep_message;
    diag_config.user = &reader;
    diag_config.level = FYET_ERROR;
    diag_config.colorize = false;
    diag = fy_diag_create(&diag_config);
    if (!diag)
        return dpb_option_log_no_memory();
    parse_config.diag = diag;
    reader.parser = fy_parser_create(&parse_config);
    if (reader.parser && fy_parser_set_string(reader.parser, text, count) == 0)
        st = read_stream(&reader, &made);
    else
        st = dpb_option_log_no_memory();
    if (reader.parser)
        fy_parser_destroy(reader.parser);
    fy_diag_destroy(diag);
    if (st == DPB_OK)
        *root = made;
    else
        dpb_yaml_release(&made);
    return st;
}

#define FILE_BYTES_MOST ((size_t)4 << 20) /* of a text that people write */

dpb_status dpb_yaml_read_file(const char *path, struct dpb_yaml *root)
{
    struct dpb_str text = {0};
    dpb_status st;

    DPB_TRY(dpb_file_read_most(path, FILE_BYTES_MOST, &text));
    st = dpb_yaml_parse(text.text, text.length, path, root);
    dpb_str_release(&text);
    return st;
}

const struct dpb_yaml *dpb_yaml_get(const struct dpb_yaml *map, const char *key)
{
    if (!map || map->kind != DPB_YAML_MAP)
        return NULL;
    for (size_t i = 0; i + 1 < map->count; i += 2)
        if (strcmp(map->items[i].text, key) == 0)
            return &map->items[i + 1];
    return NULL;
}
