#include "crew_for_tests.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_crew.h"
#include "dpb_launcher.h"

#define RANKS_MAX 8

struct dpb_crew {
    enum crew_fault fault;
    pid_t rank[RANKS_MAX], proxy, stranger;
    int ranks, killed;
    bool failed;
    char how[128];
};

struct dpb_crew *crew_for_tests_new(enum crew_fault fault)
{
    struct dpb_crew *crew = calloc(1, sizeof(*crew));
    if (crew)
        crew->fault = fault;
    return crew;
}

int crew_for_tests_killed(const struct dpb_crew *crew)
{
    return crew->killed;
}

void crew_for_tests_free(struct dpb_crew *crew)
{
    free(crew);
}

/* ---- a network that fails ---- */

static int listen_here(int *port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(here);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr *)&here, &bytes) != 0)
        return -1;
    *port = ntohs(here.sin_port);
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&there, sizeof(there)) != 0)
        _exit(8);
    return fd;
}

/* Passes on what both sides say, until the job (which names the fault) has gone to the rank. */
static _Noreturn void be_a_proxy(int listening, int port, bool hushed)
{
    static char bytes[65536];
    int ends[2] = {connect_to(port), accept(listening, NULL, NULL)};
    for (bool has_job = false; !has_job;) {
        struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
        poll(fds, 2, -1);
        for (int i = 0; i < 2; i++) {
            ssize_t got = fds[i].revents ? recv(ends[i], bytes, sizeof(bytes), 0) : -1;
            if (got == 0)
                _exit(0);
            if (got < 0)
                continue;
            has_job |= i == 0 && memmem(bytes, (size_t)got, "\"act\"", 5);
            if (send(ends[1 - i], bytes, (size_t)got, MSG_NOSIGNAL) != got)
                _exit(8);
        }
    }
    dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 300000000);
    while (hushed)
        pause();
    _exit(0);
}

/* ---- processes ---- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* This binary with one byte more: what a build on another host may be. */
static int other_build(void)
{
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int copy = memfd_create("other-build", MFD_CLOEXEC);
    while (sendfile(copy, self, NULL, 1 << 20) > 0)
        continue;
    return self < 0 || write(copy, "x", 1) != 1 ? -1 : copy;
}

/* As a rank whose greeting was answered too late. */
static void come_and_leave(const char *address, const char *token)
{
    struct dpb_net_address to;
    struct dpb_net_token secret;
    char why[128];
    int fd;
    if (dpb_net_address_parse(address, -1, &to, why, sizeof(why)) != DPB_OK ||
        dpb_net_token_from_text(token, &secret) != DPB_OK ||
        dpb_net_connect(&to, &secret, "rank", dpb_clock_now_ns() + 30000000000ll, &fd) != DPB_OK)
        _exit(8);
    close(fd);
}

static _Noreturn void become_rank(const struct dpb_crew *crew, int r, int ranks,
                                  const char *address, const char *token)
{
    char *usual[] = {(char *)"dpbench", (char *)DPB_WORKER_VERB, NULL};
    char self[4096];
    const bool twice = crew->fault == CREW_ONE_TWICE && r == ranks - 1;
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    char *shifted[] = {(char *)"unshare",
                       (char *)"--time",
                       (char *)"--monotonic",
                       (char *)"1000",
                       (char *)"--kill-child",
                       (char *)"--fork",
                       self,
                       (char *)DPB_WORKER_VERB,
                       NULL};
    set_number("OMPI_COMM_WORLD_RANK", crew->fault == CREW_SINGLETONS ? 0 : twice ? r - 1 : r);
    set_number("OMPI_COMM_WORLD_SIZE", crew->fault == CREW_SINGLETONS ? 1 : ranks);
    setenv(DPB_WORKER_ADDRESS_VARIABLE, address, 1);
    setenv(DPB_WORKER_TOKEN_VARIABLE, token, 1);
    if (crew->fault == CREW_GHOST && r == 0)
        come_and_leave(address, token);
    if (crew->fault == CREW_OTHER_CLOCK && r == 1)
        execvp("unshare", shifted);
    else if (crew->fault == CREW_OTHER_BUILD)
        fexecve(other_build(), usual, environ);
    else
        execv("/proc/self/exe", usual);
    _exit(127);
}

static pid_t start_stranger(const char *address)
{
    struct dpb_net_token token;
    char text[DPB_NET_TOKEN_TEXT];
    dpb_net_token_new(&token);
    dpb_net_token_text(&token, text);
    const struct dpb_crew usual = {.fault = CREW_WELL};
    pid_t pid = fork();
    if (pid == 0)
        become_rank(&usual, 0, 3, address, text);
    return pid;
}

dpb_status dpb_crew_start(dpb_crew *crew, const struct dpb_world *world, int ranks,
                          const struct dpb_net_address *address, const struct dpb_net_token *token)
{
    char text[DPB_NET_ADDRESS_BYTES], proxied[64] = "", secret[DPB_NET_TOKEN_TEXT];
    int port = 0, listening = -1;
    (void)world;
    dpb_net_address_text(address, text);
    dpb_net_token_text(token, secret);
    if (crew->fault == CREW_CUT || crew->fault == CREW_HUSHED) {
        listening = listen_here(&port);
        snprintf(proxied, sizeof(proxied), "127.0.0.1:%d", port);
        crew->proxy = fork();
        if (crew->proxy == 0)
            be_a_proxy(listening, address->port, crew->fault == CREW_HUSHED);
        close(listening);
    }
    if (crew->fault == CREW_STRANGER)
        crew->stranger = start_stranger(text);
    crew->ranks = crew->fault == CREW_ONE_MISSING ? ranks - 1 : ranks;
    for (int r = 0; r < crew->ranks; r++) {
        crew->rank[r] = fork();
        if (crew->rank[r] == 0)
            become_rank(crew, r, ranks, proxied[0] && r == 1 ? proxied : text, secret);
    }
    return DPB_OK;
}

static bool is_out_of_reach(const struct dpb_crew *crew)
{
    return crew->fault == CREW_CUT || crew->fault == CREW_HUSHED;
}

/* As mpirun: when one has failed the others are ended. */
dpb_status dpb_crew_check(dpb_crew *crew, char *how, size_t how_bytes)
{
    int left = 0, status;
    for (int r = 0; r < crew->ranks; r++) {
        if (crew->rank[r] <= 0)
            continue;
        if (waitpid(crew->rank[r], &status, WNOHANG) == 0) {
            left++;
            continue;
        }
        crew->rank[r] = 0;
        if (status == 0 || crew->failed)
            continue;
        crew->failed = true;
        snprintf(crew->how, sizeof(crew->how), "the crew ended: process %d, status 0x%04x", r,
                 (unsigned)status);
        for (int i = 0; i < crew->ranks; i++)
            if (crew->rank[i] > 0 && (!is_out_of_reach(crew) || i != 1))
                kill(crew->rank[i], SIGTERM);
    }
    if (left > 0)
        return DPB_PENDING;
    snprintf(how, how_bytes, "%s", crew->how);
    return crew->failed ? DPB_ERR_RANK_FAILED : DPB_OK;
}

const char *dpb_crew_remedy(const dpb_crew *crew)
{
    (void)crew;
    return NULL;
}

void dpb_crew_stop(dpb_crew *crew, bool ending)
{
    (void)ending;
    /* Ranks that were told to leave, or have lost the launcher, end by themselves; a stopped one
     * does not. */
    const int64_t deadline_ns = dpb_clock_now_ns() + 30000000000ll;
    char how[128];
    while (dpb_crew_check(crew, how, sizeof(how)) == DPB_PENDING &&
           dpb_clock_now_ns() < deadline_ns && crew->fault != CREW_WELL)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 10000000);
    for (int r = 0; r < crew->ranks; r++) {
        if (crew->rank[r] <= 0)
            continue;
        crew->killed++;
        kill(crew->rank[r], SIGKILL);
        waitpid(crew->rank[r], NULL, 0);
        crew->rank[r] = 0;
    }
    if (crew->proxy > 0) {
        kill(crew->proxy, SIGKILL);
        waitpid(crew->proxy, NULL, 0);
    }
    if (crew->stranger > 0)
        waitpid(crew->stranger, NULL, 0);
}

/* ---- what a launch asks before ---- */

dpb_status dpb_crew_map(const dpb_crew *crew, int ranks, int ranks_per_node,
                        struct dpb_world *world)
{
    (void)crew;
    (void)ranks;
    (void)ranks_per_node;
    *world = (struct dpb_world){0};
    return DPB_OK;
}

void dpb_crew_listen_hints(const dpb_crew *crew, const char **bind_to, const char **peer)
{
    (void)crew;
    *bind_to = *peer = NULL;
}

void dpb_crew_token(const dpb_crew *crew, struct dpb_net_token *token)
{
    (void)crew;
    dpb_net_token_new(token);
}

bool crew_can_shift_clocks(void)
{
    return system("unshare --time --monotonic 1000 --kill-child --fork true 2>/dev/null") == 0;
}
