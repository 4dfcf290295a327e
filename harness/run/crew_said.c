/* What mpirun or srun says, of which one message is kept. They frame messages with dashes or blank
 * lines and break them into lines, and what they say last is seldom what it was about. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "crew_private.h"

#define SSH_HINT                                                                                   \
    "`ssh HOST true` must work without a question, for every host; or name another way "           \
    "to start processes there with --launcher-args (Open MPI: --mca plm_rsh_agent PROGRAM)"

/* Lines that say what it was about, and what helps. */
static const struct {
    const char *text, *remedy;
} known[] = {
        {"attempt to run as root",
         "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or give "
         "--launcher-args=--allow-run-as-root; another user is safer"},
        {"not enough slots",
         "name hosts with enough slots (--hosts node1:8), use fewer --ranks, or give "
         "--launcher-args=--oversubscribe"},
        {"unable to find the specified executable",
         "every host needs this dpbench at the same path"},
        {"ssh: ", SSH_HINT},
        {"Host key verification failed", SSH_HINT},
        {"Permission denied (", SSH_HINT},
        {"unable to reliably start one or more daemons", SSH_HINT},
        {"could not be found: ssh", SSH_HINT},
        {"More processors requested",
         "ask for more tasks in salloc or sbatch (-n), use fewer --ranks, or give "
         "--launcher-args=--overcommit"},
        {"noticed that process rank", NULL},
        {"BAD TERMINATION", NULL},
};

static int find_known(const char *line)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(line, known[i].text))
            return (int)i;
    return -1;
}

/* Without what frames it: blanks, and Hydra's "=". */
static const char *bare(char *line)
{
    size_t length = strlen(line);
    while (length > 0 && (isspace((unsigned char)line[length - 1]) || line[length - 1] == '='))
        line[--length] = '\0';
    return line + strspn(line, " \t=");
}

static void end_message(struct crew_said *said)
{
    if (said->message[0] && !said->kept_known) {
        if (said->is_known || !said->kept[0])
            memcpy(said->kept, said->message, sizeof(said->kept));
        said->kept_known = said->is_known;
    }
    said->message[0] = '\0';
    said->is_known = false;
}

static void end_line(struct crew_said *said)
{
    said->line[said->line_bytes] = '\0';
    said->line_bytes = 0;
    const char *line = bare(said->line);
    const int which = find_known(line);
    bool has_word = false;
    for (const char *c = line; *c; c++)
        has_word |= isalpha((unsigned char)*c) != 0;
    if (!has_word || which >= 0)
        end_message(said);
    if (!has_word)
        return;
    if (which >= 0 && !said->kept_known)
        said->remedy = known[which].remedy;
    said->is_known |= which >= 0;
    const size_t used = strlen(said->message);
    snprintf(said->message + used, sizeof(said->message) - used, "%s%s", used > 0 ? " " : "", line);
}

void crew_said_note(struct crew_said *said, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n')
            end_line(said);
        else if (said->line_bytes < sizeof(said->line) - 1)
            said->line[said->line_bytes++] = bytes[i];
    }
}

const char *crew_said_text(struct crew_said *said)
{
    if (said->line_bytes > 0)
        end_line(said);
    end_message(said);
    return said->kept;
}
