/* rendezvous_tcp.c: a rank's side of the launcher's server. A thread of its own reads, so that what
 * happens to other ranks is known here while this rank computes, and so that it can be asked. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_net.h"
#include "dpb_rendezvous_server.h"
#include "rendezvous_wire.h"

#define SECOND_NS      ((int64_t)1000000000)
#define BEAT_MS        1000             /* how often notes are told that nobody asked for */
#define ANSWER_NS      (15 * SECOND_NS) /* how long the server may take to answer */
#define ACKNOWLEDGE_NS (5 * SECOND_NS)  /* or to see this rank off */

struct tcp {
    int fd;
    pthread_t reader;
    bool reader_runs;
    pthread_mutex_t send_lock;
    pthread_mutex_t survey_lock; /* one survey at a time */
    _Atomic uint64_t started, done;
    uint64_t told_started, told_done; /* the reader's */
    _Atomic int64_t closing_ns;       /* when this rank began to close; 0: it has not */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    uint64_t reached;           /* the newest call that all have come to */
    unsigned char *result_body; /* struct dpb_meet_result, and what all brought to it */
    size_t result_bytes;        /* of each rank */
    int other_rank;             /* who came to another call, or -1 */
    struct dpb_rendezvous_part other;
    bool nudged;
    uint64_t surveys; /* answered so far */
    struct dpb_rendezvous_seen *seen;
    struct dpb_rendezvous_failure failure;
    _Atomic bool failed;
};

static struct tcp *tcp_of(const dpb_rendezvous *rendezvous)
{
    return rendezvous->state;
}

/* ---- failures ---- */

/* Under the lock. The first one stays. */
static void keep_failure(struct tcp *tcp, const struct dpb_rendezvous_failure *failure)
{
    if (atomic_load(&tcp->failed))
        return;
    tcp->failure = *failure;
    tcp->failure.text[sizeof(tcp->failure.text) - 1] = '\0';
    atomic_store(&tcp->failed, true);
}

/* The server is out of reach, so nobody else can be told. */
static void lose_server(const dpb_rendezvous *rendezvous, const char *how)
{
    struct tcp *tcp = tcp_of(rendezvous);
    struct dpb_rendezvous_failure failure = {.status = DPB_ERR_RANK_FAILED};
    snprintf(failure.text, sizeof(failure.text), "rank %d has lost the launcher at %s: %s",
             rendezvous->config.rank, rendezvous->config.server->address, how);
    pthread_mutex_lock(&tcp->lock);
    keep_failure(tcp, &failure);
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
}

static bool failed(dpb_rendezvous *rendezvous)
{
    return atomic_load(&tcp_of(rendezvous)->failed);
}

static void read_failure(dpb_rendezvous *rendezvous, struct dpb_rendezvous_failure *failure)
{
    struct tcp *tcp = tcp_of(rendezvous);
    pthread_mutex_lock(&tcp->lock);
    *failure = tcp->failure;
    pthread_mutex_unlock(&tcp->lock);
}

/* ---- sending ---- */

/* `more` follows `body`; both may be empty. False, and a failure, when the server is gone. */
static bool send_message(const dpb_rendezvous *rendezvous, enum dpb_rendezvous_message kind,
                         const void *body, size_t body_bytes, const void *more, size_t more_bytes)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const struct dpb_meet_head head = {kind, (uint32_t)(body_bytes + more_bytes)};
    unsigned char message[DPB_MEET_RANK_BYTES];
    size_t bytes = sizeof(head);
    memcpy(message, &head, sizeof(head));
    if (body_bytes > 0)
        memcpy(message + bytes, body, body_bytes);
    bytes += body_bytes;
    if (more_bytes > 0)
        memcpy(message + bytes, more, more_bytes);
    bytes += more_bytes;

    int error = 0;
    pthread_mutex_lock(&tcp->send_lock);
    for (size_t done = 0; !error && done < bytes;) {
        ssize_t count = send(tcp->fd, message + done, bytes - done, MSG_NOSIGNAL);
        if (count > 0)
            done += (size_t)count;
        else if (count < 0 && errno != EINTR)
            error = errno;
    }
    pthread_mutex_unlock(&tcp->send_lock);
    if (error)
        lose_server(rendezvous, strerror(error));
    return error == 0;
}

static struct dpb_meet_note notes_of(struct tcp *tcp)
{
    return (struct dpb_meet_note){atomic_load(&tcp->started), atomic_load(&tcp->done)};
}

static void tell(const dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const struct dpb_meet_note note = notes_of(tcp);
    tcp->told_started = note.started;
    tcp->told_done = note.done;
    (void)send_message(rendezvous, DPB_MEET_NOTE, &note, sizeof(note), NULL, 0);
}

static void tell_news(const dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const struct dpb_meet_note note = notes_of(tcp);
    if (note.started != tcp->told_started || note.done != tcp->told_done)
        tell(rendezvous);
}

static void note(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done)
{
    atomic_store(&tcp_of(rendezvous)->started, started);
    atomic_store(&tcp_of(rendezvous)->done, done);
}

/* ---- receiving ---- */

static bool receive(int fd, void *bytes, size_t count)
{
    for (size_t have = 0; have < count;) {
        ssize_t got = recv(fd, (char *)bytes + have, count - have, 0);
        if (got > 0)
            have += (size_t)got;
        else if (got == 0 || errno != EINTR)
            return false;
    }
    return true;
}

/* Keeps `body`. */
static bool take_result(const dpb_rendezvous *rendezvous, unsigned char *body, size_t bytes)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const size_t size = (size_t)rendezvous->config.size;
    struct dpb_meet_result result;
    if (bytes < sizeof(result))
        return false;
    memcpy(&result, body, sizeof(result));
    if (result.bytes > DPB_COMM_EXCHANGE_BYTES || bytes != sizeof(result) + size * result.bytes)
        return false;
    pthread_mutex_lock(&tcp->lock);
    free(tcp->result_body);
    tcp->result_body = body;
    tcp->result_bytes = result.bytes;
    tcp->other_rank = -1;
    tcp->reached = result.call;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
    return true;
}

static bool take_disagreement(struct tcp *tcp, const unsigned char *body, size_t bytes)
{
    struct dpb_meet_disagree disagree;
    if (bytes != sizeof(disagree))
        return false;
    memcpy(&disagree, body, sizeof(disagree));
    tcp->other_rank = disagree.rank;
    tcp->other = disagree.part;
    tcp->reached = disagree.call;
    return true;
}

static bool take_failure(struct tcp *tcp, const unsigned char *body, size_t bytes)
{
    struct dpb_rendezvous_failure failure;
    if (bytes != sizeof(failure))
        return false;
    memcpy(&failure, body, sizeof(failure));
    keep_failure(tcp, &failure);
    return true;
}

static bool take_state(struct tcp *tcp, const unsigned char *body, size_t bytes, size_t size)
{
    if (bytes != size * sizeof(*tcp->seen))
        return false;
    memcpy(tcp->seen, body, bytes);
    tcp->surveys++;
    return true;
}

/* All but results, which may be large. */
static bool take(const dpb_rendezvous *rendezvous, const struct dpb_meet_head *head,
                 const unsigned char *body)
{
    struct tcp *tcp = tcp_of(rendezvous);
    bool known = true;
    if (head->kind == DPB_MEET_TELL) {
        tell(rendezvous);
        return true;
    }
    pthread_mutex_lock(&tcp->lock);
    if (head->kind == DPB_MEET_DISAGREE)
        known = take_disagreement(tcp, body, head->bytes);
    else if (head->kind == DPB_MEET_FAILURE)
        known = take_failure(tcp, body, head->bytes);
    else if (head->kind == DPB_MEET_STATE)
        known = take_state(tcp, body, head->bytes, (size_t)rendezvous->config.size);
    else if (head->kind == DPB_MEET_NUDGE)
        tcp->nudged = true;
    else
        known = false;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
    return known;
}

static const char *read_one(const dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const size_t most = sizeof(struct dpb_meet_result) +
                        (size_t)rendezvous->config.size * (DPB_COMM_EXCHANGE_BYTES + 1);
    struct dpb_meet_head head;
    if (!receive(tcp->fd, &head, sizeof(head)))
        return "the connection ended";
    if (head.bytes > most)
        return "it said what no launcher says";
    unsigned char *body = malloc(head.bytes + 1);
    if (!body)
        return "out of memory";
    if (!receive(tcp->fd, body, head.bytes)) {
        free(body);
        return "the connection ended";
    }
    const bool is_result = head.kind == DPB_MEET_RESULT;
    const bool known =
            is_result ? take_result(rendezvous, body, head.bytes) : take(rendezvous, &head, body);
    if (!is_result || !known)
        free(body);
    return known ? NULL : "it said what no launcher says";
}

static void *read_all(void *argument)
{
    const dpb_rendezvous *rendezvous = argument;
    struct tcp *tcp = tcp_of(rendezvous);
    const char *problem = NULL;
    while (!problem) {
        struct pollfd wait = {.fd = tcp->fd, .events = POLLIN};
        const int ready = poll(&wait, 1, BEAT_MS);
        const int64_t closing_ns = atomic_load(&tcp->closing_ns);
        if (closing_ns && dpb_clock_now_ns() > closing_ns + ACKNOWLEDGE_NS)
            return NULL;
        if (ready > 0)
            problem = read_one(rendezvous);
        else if (!closing_ns)
            tell_news(rendezvous);
    }
    if (!atomic_load(&tcp->closing_ns))
        lose_server(rendezvous, problem);
    return NULL;
}

/* ---- waiting for what is received ---- */

/* Under the lock: false when the deadline is past. */
static bool wait_for_change(struct tcp *tcp, int64_t deadline_ns)
{
    const struct timespec deadline = {deadline_ns / SECOND_NS, deadline_ns % SECOND_NS};
    return pthread_cond_timedwait(&tcp->changed, &tcp->lock, &deadline) != ETIMEDOUT;
}

static void arrive(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *part,
                   const void *data)
{
    const struct dpb_meet_part mine = {rendezvous->calls, notes_of(tcp_of(rendezvous)), *part};
    (void)send_message(rendezvous, DPB_MEET_PART, &mine, sizeof(mine), data, part->bytes);
}

static enum dpb_shared_wake wait_for_all(dpb_rendezvous *rendezvous, int64_t deadline_ns)
{
    struct tcp *tcp = tcp_of(rendezvous);
    enum dpb_shared_wake wake = DPB_SHARED_LATE;
    bool in_time = true;
    pthread_mutex_lock(&tcp->lock);
    for (;;) {
        if (tcp->reached >= rendezvous->calls)
            wake = DPB_SHARED_REACHED;
        else if (atomic_load(&tcp->failed))
            wake = DPB_SHARED_POISONED;
        else if (tcp->nudged)
            wake = DPB_SHARED_NUDGED;
        if (wake != DPB_SHARED_LATE || !in_time)
            break;
        in_time = wait_for_change(tcp, deadline_ns);
    }
    tcp->nudged = false;
    pthread_mutex_unlock(&tcp->lock);
    return wake;
}

static int find_other(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *mine,
                      struct dpb_rendezvous_part *other)
{
    (void)mine; /* the server has compared */
    struct tcp *tcp = tcp_of(rendezvous);
    pthread_mutex_lock(&tcp->lock);
    const int rank = tcp->other_rank;
    *other = tcp->other;
    pthread_mutex_unlock(&tcp->lock);
    return rank;
}

static void collect(dpb_rendezvous *rendezvous, size_t bytes, void *all)
{
    struct tcp *tcp = tcp_of(rendezvous);
    pthread_mutex_lock(&tcp->lock);
    if (tcp->result_bytes == bytes)
        memcpy(all, tcp->result_body + sizeof(struct dpb_meet_result),
               (size_t)rendezvous->config.size * bytes);
    pthread_mutex_unlock(&tcp->lock);
}

static dpb_status record(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_failure *failure)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const int64_t deadline_ns = dpb_clock_now_ns() + ANSWER_NS;
    (void)send_message(rendezvous, DPB_MEET_FAIL, failure, sizeof(*failure), NULL, 0);
    /* The server tells all ranks which failure was the first, this one too. */
    pthread_mutex_lock(&tcp->lock);
    while (!atomic_load(&tcp->failed) && wait_for_change(tcp, deadline_ns))
        continue;
    const dpb_status st = atomic_load(&tcp->failed) && tcp->failure.status < 0
                                  ? (dpb_status)tcp->failure.status
                                  : (dpb_status)failure->status;
    pthread_mutex_unlock(&tcp->lock);
    return st;
}

static bool survey(dpb_rendezvous *rendezvous, struct dpb_rendezvous_seen *seen)
{
    struct tcp *tcp = tcp_of(rendezvous);
    const int64_t deadline_ns = dpb_clock_now_ns() + ANSWER_NS;
    bool in_time = true;
    pthread_mutex_lock(&tcp->survey_lock);
    pthread_mutex_lock(&tcp->lock);
    const uint64_t before = tcp->surveys;
    pthread_mutex_unlock(&tcp->lock);
    const bool sent = send_message(rendezvous, DPB_MEET_SURVEY, NULL, 0, NULL, 0);
    pthread_mutex_lock(&tcp->lock);
    while (sent && in_time && tcp->surveys == before && !atomic_load(&tcp->failed))
        in_time = wait_for_change(tcp, deadline_ns);
    const bool answered = tcp->surveys != before;
    if (answered)
        memcpy(seen, tcp->seen, (size_t)rendezvous->config.size * sizeof(*seen));
    pthread_mutex_unlock(&tcp->lock);
    if (!answered)
        lose_server(rendezvous, "it does not answer"); /* unless there is a failure already */
    pthread_mutex_unlock(&tcp->survey_lock);
    return answered;
}

/* ---- open and close ---- */

static dpb_status start_reader(dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    sigset_t all;
    sigset_t before;
    /* Signals are for the threads of the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&tcp->reader, NULL, read_all, rendezvous);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    tcp->reader_runs = error == 0;
    if (error == 0)
        return DPB_OK;
    dpb_error("rank %d: cannot open %s: no thread: %s", rendezvous->config.rank,
              rendezvous->config.owner, strerror(error));
    return DPB_ERR_NO_MEMORY;
}

static dpb_status connect_server(dpb_rendezvous *rendezvous)
{
    const struct dpb_rendezvous_config *config = &rendezvous->config;
    struct dpb_net_address address;
    struct dpb_net_token token;
    char why[256];
    dpb_status st = dpb_net_address_parse(config->server->address, -1, &address, why, sizeof(why));
    if (st < 0) {
        dpb_error("rank %d: cannot open %s: \"%s\" is no address of a launcher: %s", config->rank,
                  config->owner, config->server->address, why);
        return st;
    }
    DPB_TRY(dpb_net_token_from_text(config->server->token, &token));
    return dpb_net_connect(&address, &token, DPB_RENDEZVOUS_ROLE,
                           dpb_clock_now_ns() + config->timeout_ns, &tcp_of(rendezvous)->fd);
}

static void say_hello(dpb_rendezvous *rendezvous)
{
    struct dpb_meet_hello hello = {.rank = rendezvous->config.rank,
                                   .size = rendezvous->config.size,
                                   .pid = (int32_t)getpid()};
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(hello.host, sizeof(hello.host), "%s", host[0] ? host : "unknown");
    (void)send_message(rendezvous, DPB_MEET_HELLO, &hello, sizeof(hello), NULL, 0);
}

static struct tcp *new_tcp(int size)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    struct dpb_rendezvous_seen *seen = calloc((size_t)size, sizeof(*seen));
    pthread_condattr_t monotonic;
    if (!tcp || !seen) {
        free(tcp);
        free(seen);
        return NULL;
    }
    tcp->fd = -1;
    tcp->seen = seen;
    tcp->other_rank = -1;
    pthread_mutex_init(&tcp->send_lock, NULL);
    pthread_mutex_init(&tcp->survey_lock, NULL);
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* dpb_clock_now_ns() */
    pthread_cond_init(&tcp->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return tcp;
}

static dpb_status open_tcp(dpb_rendezvous *rendezvous)
{
    rendezvous->state = new_tcp(rendezvous->config.size);
    if (!rendezvous->state) {
        dpb_error("rank %d: cannot open %s: out of memory", rendezvous->config.rank,
                  rendezvous->config.owner);
        return DPB_ERR_NO_MEMORY;
    }
    DPB_TRY(connect_server(rendezvous));
    say_hello(rendezvous);
    return start_reader(rendezvous);
}

static void close_tcp(dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    atomic_store(&tcp->closing_ns, dpb_clock_now_ns());
    if (send_message(rendezvous, DPB_MEET_CLOSE, NULL, 0, NULL, 0))
        shutdown(tcp->fd, SHUT_WR);
    else
        shutdown(tcp->fd, SHUT_RDWR);
    /* The server ends the connection: it has seen this rank off, which may open again. */
    pthread_join(tcp->reader, NULL);
    tcp->reader_runs = false;
}

static void release(dpb_rendezvous *rendezvous)
{
    struct tcp *tcp = tcp_of(rendezvous);
    if (tcp->reader_runs) {
        atomic_store(&tcp->closing_ns, dpb_clock_now_ns());
        shutdown(tcp->fd, SHUT_RDWR);
        pthread_join(tcp->reader, NULL);
    }
    if (tcp->fd >= 0)
        close(tcp->fd);
    pthread_cond_destroy(&tcp->changed);
    pthread_mutex_destroy(&tcp->lock);
    pthread_mutex_destroy(&tcp->survey_lock);
    pthread_mutex_destroy(&tcp->send_lock);
    free(tcp->result_body);
    free(tcp->seen);
    free(tcp);
    rendezvous->state = NULL;
}

const struct dpb_rendezvous_transport dpb_rendezvous_tcp = {
        .open = open_tcp,
        .close = close_tcp,
        .release = release,
        .arrive = arrive,
        .wait = wait_for_all,
        .find_other = find_other,
        .collect = collect,
        .record = record,
        .failed = failed,
        .read_failure = read_failure,
        .note = note,
        .survey = survey,
};
