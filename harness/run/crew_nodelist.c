/* Slurm's lists of nodes, and which name is this machine's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew_private.h"

/* Where the entry at `at` ends: at a comma outside brackets, or at the end. */
static const char *entry_end(const char *at)
{
    for (int depth = 0; *at && (depth > 0 || *at != ','); at++)
        depth += (*at == '[') - (*at == ']');
    return at;
}

/* Number `index` of "01-03,07" up to the bracket, as wide as it is written; false, and `index`
 * less by as many as there are, when there are fewer. */
static bool number_at(const char *ranges, int *index, char *text, size_t text_bytes)
{
    while (*ranges && *ranges != ']') {
        char *end;
        const long first = strtol(ranges, &end, 10);
        const int width = (int)(end - ranges);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (width == 0 || last < first)
            return false;
        if (*index <= last - first) {
            snprintf(text, text_bytes, "%0*ld", width, first + *index);
            return true;
        }
        *index -= (int)(last - first) + 1;
        ranges = *end == ',' ? end + 1 : end;
    }
    return false;
}

dpb_status crew_nodelist_at(const char *list, int index, char *name, size_t name_bytes)
{
    for (const char *at = list; at && *at;) {
        const char *end = entry_end(at), *open = memchr(at, '[', (size_t)(end - at));
        const char *close = open ? memchr(open, ']', (size_t)(end - open)) : NULL;
        char number[32] = "";
        if (open ? close && number_at(open + 1, &index, number, sizeof(number)) : index-- == 0) {
            snprintf(name, name_bytes, "%.*s%s%.*s", (int)((open ? open : end) - at), at, number,
                     open ? (int)(end - close - 1) : 0, open ? close + 1 : "");
            return DPB_OK;
        }
        at = *end ? end + 1 : NULL;
    }
    return DPB_END;
}

bool crew_is_this_host(const char *host)
{
    char own[DPB_WORLD_HOST_BYTES] = "";
    if (gethostname(own, sizeof(own) - 1) != 0)
        own[0] = '\0';
    const size_t length = strcspn(own, ".");
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0 || strcasecmp(host, own) == 0 ||
           (length > 0 && strncasecmp(host, own, length) == 0 &&
            (host[length] == '.' || host[length] == '\0'));
}
