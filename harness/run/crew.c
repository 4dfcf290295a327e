#include "dpb_crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew_private.h"
#include "dpb_clock.h"
#include "dpb_launcher.h"
#include "dpb_log.h"

#define GRACE_NS 5000000000ll /* for mpirun or srun to end by itself, before it is told to */
#define SLICE_NS 10000000ll

static const char *const launcher_texts[] = {
#define LAUNCHER_TEXT(name, text, help) [name] = text,
        DPB_LAUNCHER_MAP(LAUNCHER_TEXT)
#undef LAUNCHER_TEXT
};

const char *dpb_launcher_text(enum dpb_launcher_kind kind)
{
    return launcher_texts[kind];
}

static bool is_started_kind(int kind)
{
    return kind == DPB_LAUNCHER_NONE || kind == DPB_LAUNCHER_TORCHRUN;
}

/* ---- options ---- */

#define STARTS  (1u << DPB_LAUNCHER_MPIRUN | 1u << DPB_LAUNCHER_SRUN)
#define STARTED (1u << DPB_LAUNCHER_NONE | 1u << DPB_LAUNCHER_TORCHRUN)

/* An option that cannot take effect is an error, and not ignored. */
static dpb_status check_options(const struct dpb_crew_options *o)
{
    const struct {
        const char *name, *value;
        unsigned launchers; /* it takes effect with */
    } texts[] = {
            {"hosts", o->hosts, STARTS},
            {"hostfile", o->hostfile, STARTS},
            {"launcher-args", o->launcher_args, STARTS},
            {"rendezvous", o->rendezvous, STARTED},
            {"interface", o->interface, STARTS | STARTED},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!texts[i].value[0] || texts[i].launchers & 1u << o->launcher)
            continue;
        dpb_error("--%s %s cannot take effect with --launcher %s", texts[i].name, texts[i].value,
                  launcher_texts[o->launcher]);
        if (texts[i].launchers & STARTS)
            dpb_log_hint("leave it out, or give --launcher mpirun or srun");
        else
            dpb_log_hint("leave it out: only processes that somebody else started need to meet "
                         "(--launcher none or torchrun-env)");
        return DPB_ERR_USAGE;
    }
    if (o->hosts[0] && o->hostfile[0]) {
        dpb_error("--hosts and --hostfile both say where ranks are to be");
        dpb_log_hint("give one of them");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* `mpirun -np 16 dpbench run` would be sixteen runs that disturb one another, each of them alone in
 * its world. */
dpb_status dpb_crew_check_alone(void)
{
    struct dpb_launched launched;
    char why[256];
    dpb_status st = dpb_launched_find(&launched, why, sizeof(why));
    if (st == DPB_OK && launched.size == 1)
        st = dpb_launched_size_alone(&launched.size, &launched.size_variable, why, sizeof(why));
    if (st < 0) {
        dpb_error("cannot tell how many processes were started: %s", why);
        dpb_log_hint("unset the variables of the launcher that did not start this process");
        return st;
    }
    if (launched.size == 1)
        return DPB_OK;
    dpb_error("launched as %d processes (%s), but this one's world size is 1: dpbench starts its "
              "ranks itself",
              launched.size, launched.size_variable);
    dpb_log_hint("start it once, and give --ranks; or give --launcher none, for one rank in each "
                 "process; where the variable is a mistake: env -u %s dpbench ...",
                 launched.size_variable);
    return DPB_ERR_UNAVAILABLE;
}

/* ---- open ---- */

static dpb_status read_hosts(dpb_crew *crew)
{
    if (crew->options.hosts[0])
        DPB_TRY(dpb_world_hosts_parse(crew->options.hosts, &crew->hosts));
    if (crew->options.hostfile[0])
        DPB_TRY(dpb_world_hosts_read(crew->options.hostfile, &crew->hosts));
    for (size_t i = 0; i < crew->hosts.count && !crew->peer[0]; i++)
        if (!crew_is_this_host(crew->hosts.items[i].name))
            snprintf(crew->peer, sizeof(crew->peer), "%s", crew->hosts.items[i].name);
    return DPB_OK;
}

/* mpirun or srun. */
static dpb_status open_starter(dpb_crew *crew)
{
    DPB_TRY(dpb_crew_check_alone());
    DPB_TRY(read_hosts(crew));
    DPB_TRY(crew_words_split(crew->options.launcher_args, &crew->arguments));
    DPB_TRY(dpb_net_token_new(&crew->token));
    return crew->ops->open(crew);
}

/* Which of several this process is. */
static dpb_status find_place(int kind, struct dpb_launched *launched)
{
    char why[256];
    dpb_status st = kind == DPB_LAUNCHER_TORCHRUN ? dpb_launched_find_by(DPB_LAUNCHED_BY_TORCHRUN,
                                                                         launched, why, sizeof(why))
                                                  : dpb_launched_find(launched, why, sizeof(why));
    if (st == DPB_OK && launched->by == DPB_LAUNCHED_BY_NOBODY) {
        snprintf(why, sizeof(why),
                 "no variables of torchrun, mpirun or srun tell this process its rank");
        st = DPB_ERR_UNAVAILABLE;
    }
    if (st == DPB_OK)
        return DPB_OK;
    dpb_error("--launcher %s: %s", launcher_texts[kind], why);
    if (st == DPB_ERR_MISMATCH)
        dpb_log_hint("unset the variables of the launcher that did not start this process");
    else
        dpb_log_hint("start it by mpirun, srun or torchrun, or set RANK and WORLD_SIZE in each "
                     "process; or leave --launcher out, and dpbench starts its ranks itself");
    return st;
}

dpb_status dpb_crew_open(const struct dpb_crew_options *options, const char *settings_hash,
                         const volatile sig_atomic_t *interrupted, dpb_crew **crew,
                         dpb_status *verdict)
{
    *crew = NULL;
    DPB_TRY(check_options(options));
    if (options->launcher == DPB_LAUNCHER_LOCAL)
        return dpb_crew_check_alone();
    dpb_crew *c = calloc(1, sizeof(*c));
    if (!c)
        return DPB_ERR_NO_MEMORY;
    c->options = *options;
    c->child.output_fd = -1;
    dpb_status st;
    if (is_started_kind(options->launcher)) {
        struct crew_opening opening = {
                .settings_hash = settings_hash,
                .interrupted = interrupted,
                .deadline_ns = dpb_clock_now_ns() + options->rendezvous_timeout_ns,
        };
        st = find_place(options->launcher, &opening.launched);
        if (st == DPB_OK)
            st = crew_started_open(c, &opening, verdict);
    } else {
        c->ops = options->launcher == DPB_LAUNCHER_MPIRUN ? &crew_mpirun : &crew_srun;
        st = open_starter(c);
    }
    if (st == DPB_OK)
        *crew = c;
    else
        dpb_crew_close(c, st);
    return st;
}

void dpb_crew_close(dpb_crew *crew, dpb_status verdict)
{
    if (!crew)
        return;
    crew_started_close(crew, verdict);
    crew_child_stop(&crew->child);
    dpb_world_hosts_release(&crew->hosts);
    crew_words_release(&crew->arguments);
    crew_words_release(&crew->command);
    free(crew);
}

/* ---- what it is ---- */

enum dpb_launcher_kind dpb_crew_kind(const dpb_crew *crew)
{
    return crew ? (enum dpb_launcher_kind)crew->options.launcher : DPB_LAUNCHER_LOCAL;
}

bool dpb_crew_is_started(const dpb_crew *crew)
{
    return crew && crew->started;
}

bool dpb_crew_is_here(const dpb_crew *crew)
{
    if (!crew)
        return true;
    if (crew->started)
        return crew_started_world(crew)->nodes == 1;
    return crew->hosts.count > 0 && !crew->peer[0];
}

int dpb_crew_ranks_max(const dpb_crew *crew)
{
    return !crew ? 0 : crew->started ? crew_started_world(crew)->ranks : crew->hosts.slots;
}

static dpb_status check_started_mpi(const dpb_crew *crew, size_t launches, int least, int most)
{
    const int ranks = dpb_crew_ranks_max(crew);
    if (launches == 1 && least == ranks && most == ranks)
        return DPB_OK;
    if (launches > 1)
        dpb_error("--comm mpi can serve one launch with --launcher %s, and this plan has %zu: MPI "
                  "starts once in a process",
                  launcher_texts[crew->options.launcher], launches);
    else
        dpb_error(
                "--comm mpi needs all %d processes with --launcher %s, and this plan has %d ranks",
                ranks, launcher_texts[crew->options.launcher], least);
    dpb_log_hint("--launcher mpirun or srun starts MPI anew for every launch; or use one cell, "
                 "--repeats 1 and --ranks %d",
                 ranks);
    return DPB_ERR_USAGE;
}

dpb_status dpb_crew_check_comm(const dpb_crew *crew, const char *name, bool needs_segment,
                               size_t launches, int ranks_least, int ranks_most)
{
    if (!crew)
        return DPB_OK;
    if (strcmp(name, "mpi") == 0 && crew->started)
        return check_started_mpi(crew, launches, ranks_least, ranks_most);
    if (!needs_segment)
        return DPB_OK;
    dpb_error("--comm %s moves bytes through memory that ranks inherit, and --launcher %s leaves "
              "them none",
              name, launcher_texts[crew->options.launcher]);
    dpb_log_hint("give --comm mpi; or leave --launcher out, for ranks on this machine");
    return DPB_ERR_USAGE;
}

/* " --launcher mpirun --hosts node1:2,node2:2": for a shell, what was given. */
static void append_options(const struct dpb_crew_options *o, struct dpb_str *out)
{
    const char *const given[][2] = {
            {"launcher", launcher_texts[o->launcher]},
            {"hosts", o->hosts},
            {"hostfile", o->hostfile},
            {"interface", o->interface},
            {"rendezvous", o->rendezvous},
            {"launcher-args", o->launcher_args},
    };
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        if (!given[i][1][0])
            continue;
        dpb_str_appendf(out, " --%s%s", given[i][0], given[i][1][0] == '-' ? "=" : " ");
        dpb_shell_quote(given[i][1], out);
    }
}

dpb_json *dpb_crew_json(const dpb_crew *crew)
{
    struct dpb_str options = {0};
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "launcher", launcher_texts[dpb_crew_kind(crew)]);
    dpb_json_set(json, "version",
                 crew && crew->version[0] ? dpb_json_string(crew->version) : dpb_json_null());
    dpb_json *command = crew && crew->command.count > 0 ? dpb_json_array() : dpb_json_null();
    for (size_t i = 0; crew && i < crew->command.count; i++)
        dpb_json_append(command, dpb_json_string(crew->command.items[i]));
    dpb_json_set(json, "command", command);
    dpb_json *hosts = crew && crew->hosts.count > 0 ? dpb_json_array() : dpb_json_null();
    for (size_t i = 0; crew && i < crew->hosts.count; i++) {
        dpb_json *host = dpb_json_object();
        dpb_json_set_string(host, "name", crew->hosts.items[i].name);
        dpb_json_set_int(host, "slots", crew->hosts.items[i].slots);
        dpb_json_append(hosts, host);
    }
    dpb_json_set(json, "hosts", hosts);
    if (crew)
        append_options(&crew->options, &options);
    dpb_json_set_string(json, "options", options.text && !options.failed ? options.text : "");
    dpb_str_release(&options);
    return json;
}

/* ---- launches ---- */

/* The first `ranks` of a world. */
static dpb_status part_of(const struct dpb_world *whole, int ranks, struct dpb_world *world)
{
    struct dpb_world_host *node = calloc((size_t)whole->nodes, sizeof(*node));
    int nodes = 0;
    if (!node)
        return DPB_ERR_NO_MEMORY;
    for (int left = ranks; left > 0 && nodes < whole->nodes; nodes++) {
        node[nodes] = whole->node[nodes];
        node[nodes].slots = node[nodes].slots < left ? node[nodes].slots : left;
        left -= node[nodes].slots;
    }
    dpb_status st = dpb_world_from_nodes(node, nodes, world);
    free(node);
    return st;
}

dpb_status dpb_crew_map(const dpb_crew *crew, int ranks, int ranks_per_node,
                        struct dpb_world *world)
{
    *world = (struct dpb_world){0};
    const int most = dpb_crew_ranks_max(crew);
    if (crew && crew->started && ranks > most) {
        dpb_error("%d ranks need as many processes, and %d were started", ranks, most);
        dpb_log_hint("start more of them, or use --ranks %d at most", most);
        return DPB_ERR_UNAVAILABLE;
    }
    if (crew && crew->started)
        return part_of(crew_started_world(crew), ranks, world);
    if (most == 0)
        return DPB_OK;
    return dpb_world_map(&crew->hosts, ranks, ranks_per_node, world);
}

void dpb_crew_listen_hints(const dpb_crew *crew, const char **bind_to, const char **peer)
{
    *bind_to = crew->options.interface[0] ? crew->options.interface
               : crew->bind_to[0]         ? crew->bind_to
                                          : NULL;
    *peer = crew->peer[0] ? crew->peer : NULL;
}

void dpb_crew_token(const dpb_crew *crew, struct dpb_net_token *token)
{
    *token = crew->token;
}

/* What a rank needs to find the driver. */
static char **launch_environment(const struct dpb_net_address *address,
                                 const struct dpb_net_token *token)
{
    char where[DPB_NET_ADDRESS_BYTES], secret[DPB_NET_TOKEN_TEXT];
    char address_variable[DPB_NET_ADDRESS_BYTES + 32], token_variable[DPB_NET_TOKEN_TEXT + 32];
    dpb_net_address_text(address, where);
    dpb_net_token_text(token, secret);
    snprintf(address_variable, sizeof(address_variable), "%s=%s", DPB_WORKER_ADDRESS_VARIABLE,
             where);
    snprintf(token_variable, sizeof(token_variable), "%s=%s", DPB_WORKER_TOKEN_VARIABLE, secret);
    return crew_environment((const char *const[]){NULL},
                            (const char *const[]){address_variable, token_variable, NULL});
}

dpb_status dpb_crew_start(dpb_crew *crew, const struct dpb_world *world, int ranks,
                          const struct dpb_net_address *address, const struct dpb_net_token *token)
{
    static const struct dpb_world unknown = {0};
    if (crew->started)
        return crew_started_start(crew, ranks, address);
    crew_words_release(&crew->command);
    DPB_TRY(crew->ops->command(crew, world ? world : &unknown, ranks, &crew->command));
    char **environment = launch_environment(address, token);
    if (!environment)
        return DPB_ERR_NO_MEMORY;
    dpb_status st =
            crew_child_start(&crew->child, crew->program, crew->command.items, environment, true);
    crew_strings_free(environment);
    return st;
}

dpb_status dpb_crew_check(dpb_crew *crew, char *how, size_t how_bytes)
{
    return crew->started ? crew_started_check(crew, how, how_bytes)
                         : crew_child_check(&crew->child, crew->ops->name, how, how_bytes);
}

const char *dpb_crew_remedy(const dpb_crew *crew)
{
    return crew->child.said.remedy;
}

static void wait_for_launcher(dpb_crew *crew)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + GRACE_NS;
    char how[CREW_HOW_BYTES];
    while (dpb_crew_check(crew, how, sizeof(how)) == DPB_PENDING &&
           dpb_clock_now_ns() < deadline_ns)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SLICE_NS);
}

void dpb_crew_stop(dpb_crew *crew, bool ending)
{
    if (crew->started)
        crew_started_stop(crew);
    else if (ending)
        wait_for_launcher(crew);
    crew_child_stop(&crew->child);
}
