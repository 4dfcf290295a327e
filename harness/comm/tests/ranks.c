#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_rendezvous_server.h"

#define LOG_BYTES 65536

static int this_rank = -1;

static void keep_log(void *context, enum dpb_log_level level, const char *line)
{
    (void)level;
    char *log = context;
    size_t length = strlen(log);
    snprintf(log + length, LOG_BYTES - length, "%s\n", line);
}

void *ranks_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

bool ranks_logged(const struct ranks_self *self, const char *text)
{
    if (strstr(self->log, text))
        return true;
    fprintf(stderr, "rank %d: \"%s\" is not in its log:\n%s", this_rank, text, self->log);
    return false;
}

static char log_text[LOG_BYTES];

void ranks_fail(const char *file, int line, const char *what, int64_t got)
{
    fprintf(stderr, "%s:%d: rank %d: failed: %s (got %" PRId64 ")\nits log:\n%s", file, line,
            this_rank, what, got, log_text);
    /* Peers must not wait for this rank: it dies, and the parent kills them. */
    _exit(1);
}

/* ---- where ranks meet over TCP ---- */

/* The launcher's part: a process, so that the ranks' parent has one thread when it forks. */
static struct {
    pid_t pid;
    int stop; /* closed: it is to end */
    char address[DPB_NET_ADDRESS_BYTES];
    char token[DPB_NET_TOKEN_TEXT];
    struct dpb_comm_server server;
} launcher;

static void admit_all(dpb_net_door *door, dpb_rendezvous_server *server, int stop)
{
    struct pollfd ready[256] = {{.fd = stop, .events = POLLIN}};
    while (!ready[0].revents) {
        char role[DPB_NET_ROLE_BYTES];
        struct dpb_net_address from;
        int fds[255];
        int fd;
        const size_t count = dpb_net_door_fds(door, fds, 255);
        for (size_t i = 0; i < count; i++)
            ready[i + 1] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        poll(ready, count + 1, 100);
        while (dpb_net_door_admit(door, &fd, role, &from) == DPB_OK)
            dpb_rendezvous_server_give(server, fd, &from);
    }
}

static void run_launcher(int ranks, int listening, const struct dpb_net_token *token, int stop)
{
    dpb_net_door *door;
    dpb_rendezvous_server *server;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dpb_net_door_open(listening, token, &door) != DPB_OK ||
        dpb_rendezvous_server_open(ranks, &server) != DPB_OK)
        exit(1);
    admit_all(door, server, stop);
    dpb_rendezvous_server_close(server);
    dpb_net_door_close(door);
    exit(0);
}

static void start_launcher(int ranks)
{
    struct dpb_net_address address;
    struct dpb_net_token token;
    int listening;
    int stop[2];
    if (dpb_net_token_new(&token) != DPB_OK || pipe2(stop, O_CLOEXEC) != 0 ||
        dpb_net_listen(NULL, NULL, 0, &listening, &address) != DPB_OK)
        abort();
    dpb_net_token_text(&token, launcher.token);
    dpb_net_address_text(&address, launcher.address);
    launcher.server = (struct dpb_comm_server){launcher.address, launcher.token};
    fflush(NULL);
    launcher.pid = fork();
    if (launcher.pid < 0)
        abort();
    if (launcher.pid == 0) {
        close(stop[1]);
        run_launcher(ranks, listening, &token, stop[0]);
    }
    close(listening);
    close(stop[0]);
    launcher.stop = stop[1];
}

static bool stop_launcher(void)
{
    int status;
    close(launcher.stop);
    while (waitpid(launcher.pid, &status, 0) < 0)
        if (errno != EINTR)
            return false; /* it ended before, and was taken for no rank */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- ranks ---- */

static void run_rank(const struct ranks_plan *plan, int rank, int fd, ranks_body body,
                     void *argument)
{
    this_rank = rank;
    if (plan->tcp)
        close(launcher.stop);
    /* Two watchdogs: a stopped process takes no alarm, but dies with the parent. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(RANKS_WATCHDOG_S);
    dpb_log_set_sink(keep_log, log_text);
    struct ranks_self self = {
            .plan = plan,
            .options = {.algorithm = (int)plan->algorithm,
                        .link = plan->link,
                        .link_inside = plan->link_inside,
                        .progress = (int)plan->progress},
            .ops = &dpb_comm_shm_ops,
            .log = log_text,
    };
    self.config = (struct dpb_comm_config){
            .rank = rank,
            .size = plan->ranks,
            .local_rank = rank,
            .ranks_per_node = plan->ranks_per_node,
            .segment_fd = fd,
            .server = plan->tcp ? &launcher.server : NULL,
            .timeout_ns = plan->timeout_ns ? plan->timeout_ns : (int64_t)60 * 1000000000,
            .options = &self.options,
    };
    if (!plan->no_open)
        RANK_EQUAL(self.ops->open(&self.config, &self.comm), DPB_OK);
    body(&self, argument);
    if (!plan->keep_open && self.comm)
        self.ops->close(self.comm);
    /* exit, not _exit: the sanitizers report at exit. */
    exit(0);
}

int ranks_run(const struct ranks_plan *plan, ranks_body body, void *argument)
{
    int fd;
    if (dpb_comm_segment_new(plan->ranks, &fd) != DPB_OK)
        return plan->ranks;
    if (plan->tcp)
        start_launcher(plan->ranks);
    fflush(NULL);
    pid_t pid[DPB_COMM_RANKS_MAX];
    for (int r = 0; r < plan->ranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            run_rank(plan, r, fd, body, argument);
        if (pid[r] < 0)
            abort();
    }
    close(fd);
    int failed = 0;
    for (int left = plan->ranks; left > 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended < 0 && errno == EINTR)
            continue;
        if (ended < 0)
            abort();
        for (int r = 0; r < plan->ranks; r++) {
            if (pid[r] != ended)
                continue;
            left--;
            pid[r] = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                continue;
            if (WIFSIGNALED(status) && failed == 0)
                fprintf(stderr, "rank %d was ended by signal %d\n", r, WTERMSIG(status));
            failed++;
            for (int other = 0; other < plan->ranks; other++)
                if (pid[other] > 0)
                    kill(pid[other], SIGKILL);
        }
    }
    if (plan->tcp && !stop_launcher())
        failed++;
    return failed;
}

static struct dpb_algorithm_setup setup_of(const struct ranks_plan *plan)
{
    return (struct dpb_algorithm_setup){.algorithm = plan->algorithm,
                                        .ranks = plan->ranks,
                                        .ranks_per_node = plan->ranks_per_node};
}

bool ranks_can(const struct ranks_plan *plan, enum dpb_coll_kind kind)
{
    const struct dpb_algorithm_setup setup = setup_of(plan);
    char why[512];
    return dpb_algorithm_check(&setup, kind, why, sizeof(why)) == DPB_OK;
}

int64_t ranks_wire_bytes(const struct ranks_plan *plan, const struct dpb_coll *coll, int rank)
{
    const struct dpb_algorithm_setup setup = setup_of(plan);
    return dpb_setup_wire_bytes(&setup, coll->kind, rank, coll->root, coll->count,
                                dpb_dtype_bytes(coll->dtype));
}

int64_t ranks_wire_between_bytes(const struct ranks_plan *plan, const struct dpb_coll *coll,
                                 int rank)
{
    const struct dpb_algorithm_setup setup = setup_of(plan);
    return dpb_setup_wire_levels(&setup, coll->kind, rank, coll->root, coll->count,
                                 dpb_dtype_bytes(coll->dtype))
            .between_bytes;
}

dpb_status ranks_collective(struct ranks_self *self, const struct dpb_coll *coll,
                            struct dpb_coll_times *times)
{
    dpb_request *request;
    DPB_TRY(self->ops->start(self->comm, coll, NULL, &request));
    return self->ops->wait(self->comm, request, NULL, times);
}
