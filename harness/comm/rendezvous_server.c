/* rendezvous_server.c: the launcher's side: a thread that gathers what the ranks bring to each
 * call, and knows who is there. */
#include "dpb_rendezvous_server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "rendezvous_link.h"

#define SURVEY_NS 1000000000ll /* how long ranks may take to say where they are */
#define EVENTS    64

/* One rank in one round. */
struct place {
    struct connection *connection; /* NULL: not yet, or gone */
    bool joined, gone;
    bool asks;    /* it waits for what is known of all */
    bool is_told; /* it was asked where it is, and has not answered */
    struct dpb_rendezvous_part part;
    struct dpb_rendezvous_seen seen;
};

/* One rendezvous of all ranks. */
struct round {
    struct round *next;
    int joined, gone, arrived, unanswered;
    bool surveys;
    int64_t survey_deadline_ns;
    uint64_t call; /* the one that is gathered */
    struct dpb_rendezvous_failure failure;
    unsigned char *data; /* DPB_COMM_EXCHANGE_BYTES of each rank */
    struct place place[];
};

/* A connection that the thread has not taken over yet. */
struct given {
    int fd;
    struct dpb_net_address from;
};

struct connection {
    struct connection *next;
    dpb_rendezvous_server *server;
    struct dpb_meet_link link;
    struct dpb_net_address from;
    struct round *round; /* NULL: it has not said yet who it is, or has left */
    int rank;            /* -1: of no place */
    bool leaves;         /* it has said so */
    bool refused;        /* it was told why, and is not listened to any more */
    bool writes;         /* it has more to send than the kernel takes now */
};

struct dpb_rendezvous_server {
    int ranks;
    int epoll_fd, wake_fd;
    pthread_t thread;
    struct connection *connections;
    struct round *rounds; /* the oldest first */
    pthread_mutex_t lock; /* of the rest */
    bool stops;
    struct given *given;
    size_t given_count;
};

/* ---- sending ---- */

static void send_new(struct connection *to, enum dpb_rendezvous_message kind, const void *body,
                     size_t bytes)
{
    void *copy;
    struct dpb_meet_message *message = dpb_meet_message_new(kind, bytes, &copy);
    if (message && bytes > 0)
        memcpy(copy, body, bytes);
    dpb_meet_link_send(&to->link, message);
    dpb_meet_message_release(message);
}

static void send_failure(struct connection *to, const struct dpb_rendezvous_failure *failure)
{
    send_new(to, DPB_MEET_FAILURE, failure, sizeof(*failure));
}

/* The first failure of a round counts, and is told to all ranks of it. */
static void fail_round(dpb_rendezvous_server *server, struct round *round,
                       const struct dpb_rendezvous_failure *failure)
{
    if (round->failure.status != DPB_OK)
        return;
    round->failure = *failure;
    round->failure.text[sizeof(round->failure.text) - 1] = '\0';
    for (int r = 0; r < server->ranks; r++)
        if (round->place[r].connection)
            send_failure(round->place[r].connection, &round->failure);
}

__attribute__((format(printf, 4, 5))) static void fail_text(dpb_rendezvous_server *server,
                                                            struct round *round, dpb_status st,
                                                            const char *format, ...)
{
    struct dpb_rendezvous_failure failure = {.status = st};
    va_list args;
    va_start(args, format);
    vsnprintf(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    fail_round(server, round, &failure);
}

/* ---- who is there ---- */

static struct round *new_round(dpb_rendezvous_server *server)
{
    const size_t ranks = (size_t)server->ranks;
    struct round **end = &server->rounds;
    struct round *round = calloc(1, sizeof(*round) + ranks * sizeof(round->place[0]));
    unsigned char *data = calloc(ranks, DPB_COMM_EXCHANGE_BYTES);
    if (!round || !data) {
        free(round);
        free(data);
        return NULL;
    }
    round->data = data;
    round->call = 1;
    while (*end)
        end = &(*end)->next;
    *end = round;
    return round;
}

static void free_round(dpb_rendezvous_server *server, struct round *round)
{
    struct round **at = &server->rounds;
    while (*at != round)
        at = &(*at)->next;
    *at = round->next;
    free(round->data);
    free(round);
}

/* The round that `rank` is to join: the oldest in which it has not been, yet none while it still is
 * in another: that one is `taken`. */
static struct round *round_for(dpb_rendezvous_server *server, int rank, struct round **taken)
{
    *taken = NULL;
    for (struct round *round = server->rounds; round; round = round->next) {
        const struct place *place = &round->place[rank];
        if (!place->joined)
            return round;
        if (!place->gone) {
            *taken = round;
            return NULL;
        }
    }
    return new_round(server);
}

static void join(struct connection *from, struct round *round, const struct dpb_meet_hello *hello)
{
    struct place *place = &round->place[hello->rank];
    from->round = round;
    from->rank = hello->rank;
    place->connection = from;
    place->joined = true;
    place->seen.pid = hello->pid;
    memcpy(place->seen.host, hello->host, sizeof(place->seen.host));
    place->seen.host[sizeof(place->seen.host) - 1] = '\0';
    round->joined++;
    if (round->failure.status != DPB_OK)
        send_failure(from, &round->failure);
}

/* Who cannot be the rank that it says it is ends the round, and learns why. */
static void refuse(struct connection *from, struct round *round)
{
    from->refused = true;
    send_failure(from, &round->failure);
}

static bool take_hello(struct connection *from, const struct dpb_meet_hello *hello)
{
    dpb_rendezvous_server *server = from->server;
    struct round *taken = NULL;
    const bool is_rank = hello->rank >= 0 && hello->rank < server->ranks;
    struct round *round = round_for(server, is_rank ? hello->rank : 0, &taken);
    if (hello->size == server->ranks && round && is_rank) {
        join(from, round, hello);
        return true;
    }
    round = round ? round : taken;
    if (!round || (hello->size == server->ranks && !is_rank))
        return false;
    if (hello->size != server->ranks)
        fail_text(server, round, DPB_ERR_MISMATCH,
                  "rank %" PRId32 " was told that there are %" PRId32
                  " ranks, the launcher was told %d",
                  hello->rank, hello->size, server->ranks);
    else
        fail_text(server, round, DPB_ERR_MISMATCH,
                  "rank %" PRId32 " is in use by process %" PRId32 " on %s, so process %" PRId32
                  " on %.64s cannot be it",
                  hello->rank, round->place[hello->rank].seen.pid,
                  round->place[hello->rank].seen.host, hello->pid, hello->host);
    refuse(from, round);
    return true;
}

/* ---- calls ---- */

static bool same_part(const struct dpb_rendezvous_part *a, const struct dpb_rendezvous_part *b)
{
    return a->bytes == b->bytes && strncmp(a->what, b->what, sizeof(a->what)) == 0;
}

/* Each rank is told of one that came to another call than itself. */
static void send_disagreement(dpb_rendezvous_server *server, struct round *round, int odd)
{
    for (int r = 0; r < server->ranks; r++) {
        const bool like_first = same_part(&round->place[r].part, &round->place[0].part);
        const int other = like_first ? odd : 0;
        const struct dpb_meet_disagree disagree = {round->call, other, round->place[other].part};
        if (round->place[r].connection)
            send_new(round->place[r].connection, DPB_MEET_DISAGREE, &disagree, sizeof(disagree));
    }
}

static void send_result(dpb_rendezvous_server *server, struct round *round)
{
    const size_t bytes = round->place[0].part.bytes;
    const struct dpb_meet_result result = {round->call, bytes};
    void *body;
    struct dpb_meet_message *message = dpb_meet_message_new(
            DPB_MEET_RESULT, sizeof(result) + (size_t)server->ranks * bytes, &body);
    if (message)
        memcpy(body, &result, sizeof(result));
    for (size_t r = 0; message && r < (size_t)server->ranks; r++)
        memcpy((char *)body + sizeof(result) + r * bytes, round->data + r * DPB_COMM_EXCHANGE_BYTES,
               bytes);
    for (int r = 0; r < server->ranks; r++)
        if (round->place[r].connection)
            dpb_meet_link_send(&round->place[r].connection->link, message);
    dpb_meet_message_release(message);
}

static void end_call(dpb_rendezvous_server *server, struct round *round)
{
    int odd = 0;
    while (odd < server->ranks && same_part(&round->place[odd].part, &round->place[0].part))
        odd++;
    if (odd < server->ranks)
        send_disagreement(server, round, odd);
    else
        send_result(server, round);
    round->call++;
    round->arrived = 0;
}

/* Whoever has come to the call learns that somebody else will not. */
static void nudge(dpb_rendezvous_server *server, struct round *round)
{
    for (int r = 0; r < server->ranks; r++)
        if (round->place[r].connection && round->place[r].seen.called == round->call)
            send_new(round->place[r].connection, DPB_MEET_NUDGE, NULL, 0);
}

static bool take_part(struct connection *from, const unsigned char *body, size_t bytes)
{
    struct dpb_meet_part part;
    struct round *round = from->round;
    if (bytes < sizeof(part))
        return false;
    memcpy(&part, body, sizeof(part));
    if (part.part.bytes > DPB_COMM_EXCHANGE_BYTES || bytes != sizeof(part) + part.part.bytes)
        return false;
    struct place *place = &round->place[from->rank];
    if (part.call != place->seen.called + 1 || part.call != round->call)
        return false;
    place->part = part.part;
    place->part.what[DPB_RENDEZVOUS_WHAT - 1] = '\0';
    place->seen.called = part.call;
    place->seen.started = part.note.started;
    place->seen.done = part.note.done;
    memcpy(round->data + (size_t)from->rank * DPB_COMM_EXCHANGE_BYTES, body + sizeof(part),
           part.part.bytes);
    if (++round->arrived == from->server->ranks)
        end_call(from->server, round);
    else if (round->gone > 0)
        send_new(from, DPB_MEET_NUDGE, NULL, 0);
    return true;
}

/* ---- surveys ---- */

static void end_survey(dpb_rendezvous_server *server, struct round *round)
{
    const size_t bytes = (size_t)server->ranks * sizeof(struct dpb_rendezvous_seen);
    void *body;
    struct dpb_meet_message *message = dpb_meet_message_new(DPB_MEET_STATE, bytes, &body);
    for (int r = 0; message && r < server->ranks; r++)
        memcpy((struct dpb_rendezvous_seen *)body + r, &round->place[r].seen,
               sizeof(round->place[r].seen));
    for (int r = 0; r < server->ranks; r++) {
        struct place *place = &round->place[r];
        if (place->asks && place->connection)
            dpb_meet_link_send(&place->connection->link, message);
        place->asks = false;
        place->is_told = false;
    }
    dpb_meet_message_release(message);
    round->surveys = false;
    round->unanswered = 0;
}

static void begin_survey(dpb_rendezvous_server *server, struct round *round)
{
    round->surveys = true;
    round->survey_deadline_ns = dpb_clock_now_ns() + SURVEY_NS;
    for (int r = 0; r < server->ranks; r++) {
        struct place *place = &round->place[r];
        if (!place->connection)
            continue;
        place->is_told = true;
        round->unanswered++;
        send_new(place->connection, DPB_MEET_TELL, NULL, 0);
    }
}

static void answered(dpb_rendezvous_server *server, struct round *round, struct place *place)
{
    if (!place->is_told)
        return;
    place->is_told = false;
    if (--round->unanswered == 0)
        end_survey(server, round);
}

/* ---- messages ---- */

static void leave(struct connection *from)
{
    struct round *round = from->round;
    struct place *place = &round->place[from->rank];
    place->connection = NULL;
    place->gone = true;
    place->seen.closed = true;
    round->gone++;
    from->round = NULL;
    from->rank = -1;
    answered(from->server, round, place);
    nudge(from->server, round);
    if (round->gone == from->server->ranks)
        free_round(from->server, round);
}

static bool take_note(struct connection *from, const void *body)
{
    struct place *place = &from->round->place[from->rank];
    struct dpb_meet_note note;
    memcpy(&note, body, sizeof(note));
    place->seen.started = note.started;
    place->seen.done = note.done;
    answered(from->server, from->round, place);
    return true;
}

static bool take_failure(struct connection *from, const void *body)
{
    struct dpb_rendezvous_failure failure;
    memcpy(&failure, body, sizeof(failure));
    if (failure.status >= DPB_OK)
        return false;
    fail_round(from->server, from->round, &failure);
    return true;
}

static bool take_survey(struct connection *from)
{
    from->round->place[from->rank].asks = true;
    if (!from->round->surveys)
        begin_survey(from->server, from->round);
    return true;
}

static bool take(void *ctx, enum dpb_rendezvous_message kind, const void *body, size_t bytes)
{
    struct connection *from = ctx;
    if (from->refused || from->leaves)
        return true;
    if (!from->round) {
        struct dpb_meet_hello hello;
        if (kind != DPB_MEET_HELLO || bytes != sizeof(hello))
            return false;
        memcpy(&hello, body, sizeof(hello));
        return take_hello(from, &hello);
    }
    switch (kind) {
    case DPB_MEET_PART:
        return take_part(from, body, bytes);
    case DPB_MEET_NOTE:
        return bytes == sizeof(struct dpb_meet_note) && take_note(from, body);
    case DPB_MEET_FAIL:
        return bytes == sizeof(struct dpb_rendezvous_failure) && take_failure(from, body);
    case DPB_MEET_SURVEY:
        return bytes == 0 && take_survey(from);
    case DPB_MEET_CLOSE:
        from->leaves = true;
        leave(from);
        return bytes == 0;
    default:
        return false;
    }
}

/* ---- connections ---- */

static void watch(struct connection *connection, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (connection->writes ? EPOLLOUT : 0u),
                                .data.ptr = connection};
    if (epoll_ctl(connection->server->epoll_fd, operation, connection->link.fd, &event) == 0)
        return;
    connection->link.broken = strerror(errno);
    dpb_error("the rendezvous cannot watch the connection from %s: %s", connection->from.host,
              connection->link.broken);
    dpb_log_hint("raise fs.epoll.max_user_watches, or give this host more memory");
}

static void take_over(dpb_rendezvous_server *server, const struct given *given)
{
    const int fd = given->fd;
    struct connection *connection = calloc(1, sizeof(*connection));
    const int flags = fcntl(fd, F_GETFL);
    if (!connection || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        dpb_error("the rendezvous cannot take the connection from %s: %s", given->from.host,
                  connection ? strerror(errno) : "out of memory");
        free(connection);
        close(fd);
        return;
    }
    dpb_meet_link_init(&connection->link, fd);
    connection->server = server;
    connection->from = given->from;
    connection->rank = -1;
    connection->next = server->connections;
    server->connections = connection;
    watch(connection, EPOLL_CTL_ADD);
}

/* A connection that ends without a word is a rank that died, or was cut off. */
static void lose(struct connection *connection)
{
    struct round *round = connection->round;
    if (!round)
        return;
    const struct place *place = &round->place[connection->rank];
    char last[DPB_RENDEZVOUS_WHAT + 48] = "";
    if (place->seen.called > 0)
        snprintf(last, sizeof(last), ", last seen at call #%" PRIu64 " (%s)", place->seen.called,
                 place->part.what);
    fail_text(connection->server, round, DPB_ERR_RANK_FAILED,
              "rank %d on %s (%s, process %" PRId32 ") is gone: its connection broke (%s)%s",
              connection->rank, place->seen.host, connection->from.host, place->seen.pid,
              connection->link.broken, last);
    leave(connection);
}

/* Who was refused ends its connection itself, after it has heard why. */
static bool is_over(const struct connection *connection)
{
    return connection->link.broken || connection->leaves;
}

/* End what is over. Losing one rank tells others, which may break their connections too. */
static void tidy(dpb_rendezvous_server *server)
{
    for (struct connection **at = &server->connections; *at;) {
        struct connection *connection = *at;
        const bool writes = dpb_meet_link_has_more(&connection->link);
        if (!is_over(connection) && writes != connection->writes) {
            connection->writes = writes;
            watch(connection, EPOLL_CTL_MOD);
        }
        if (is_over(connection)) {
            lose(connection);
            *at = connection->next;
            dpb_meet_link_release(&connection->link); /* closing ends the watch, too */
            free(connection);
            at = &server->connections;
            continue;
        }
        at = &connection->next;
    }
}

/* ---- the thread ---- */

static int survey_timeout_ms(const dpb_rendezvous_server *server)
{
    int64_t first_ns = INT64_MAX;
    for (const struct round *round = server->rounds; round; round = round->next)
        if (round->surveys && round->survey_deadline_ns < first_ns)
            first_ns = round->survey_deadline_ns;
    if (first_ns == INT64_MAX)
        return -1;
    const int64_t left_ns = first_ns - dpb_clock_now_ns();
    return left_ns <= 0 ? 0 : (int)(left_ns / 1000000) + 1;
}

static void end_late_surveys(dpb_rendezvous_server *server)
{
    for (struct round *round = server->rounds; round; round = round->next)
        if (round->surveys && dpb_clock_now_ns() >= round->survey_deadline_ns)
            end_survey(server, round);
}

/* False when the server is to end. */
static bool take_given(dpb_rendezvous_server *server)
{
    uint64_t count;
    ssize_t got = read(server->wake_fd, &count, sizeof(count));
    (void)got; /* nothing there: woken by something else */
    pthread_mutex_lock(&server->lock);
    const bool stops = server->stops;
    struct given *given = server->given;
    const size_t given_count = server->given_count;
    server->given = NULL;
    server->given_count = 0;
    pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < given_count; i++)
        take_over(server, &given[i]);
    free(given);
    return !stops;
}

static void handle(const struct epoll_event *event)
{
    struct connection *connection = event->data.ptr;
    if (event->events & EPOLLOUT)
        dpb_meet_link_flush(&connection->link);
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        dpb_meet_link_read(&connection->link, take, connection);
}

static void *serve(void *argument)
{
    dpb_rendezvous_server *server = argument;
    struct epoll_event events[EVENTS];
    bool goes_on = true;
    while (goes_on) {
        const int count = epoll_wait(server->epoll_fd, events, EVENTS, survey_timeout_ms(server));
        /* Connections end in tidy() only: all events of a batch are of some that are there. */
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr)
                handle(&events[i]);
        end_late_surveys(server);
        goes_on = take_given(server);
        tidy(server);
    }
    return NULL;
}

/* ---- open, give, close ---- */

static void release(dpb_rendezvous_server *server)
{
    while (server->connections) {
        struct connection *connection = server->connections;
        server->connections = connection->next;
        dpb_meet_link_release(&connection->link);
        free(connection);
    }
    while (server->rounds)
        free_round(server, server->rounds);
    for (size_t i = 0; i < server->given_count; i++)
        close(server->given[i].fd);
    free(server->given);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

static int start(dpb_rendezvous_server *server)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = NULL};
    sigset_t all;
    sigset_t before;
    if (server->epoll_fd < 0 || server->wake_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &wake) != 0)
        return errno;
    /* Signals are for the launcher's own thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

dpb_status dpb_rendezvous_server_open(int ranks, dpb_rendezvous_server **opened)
{
    if (ranks < 1 || ranks > DPB_COMM_WORLD_RANKS_MAX) {
        dpb_error("cannot serve a rendezvous of %d ranks: 1 to %d are possible", ranks,
                  DPB_COMM_WORLD_RANKS_MAX);
        return DPB_ERR_USAGE;
    }
    dpb_rendezvous_server *server = calloc(1, sizeof(*server));
    if (!server) {
        dpb_error("cannot serve a rendezvous of %d ranks: out of memory", ranks);
        return DPB_ERR_NO_MEMORY;
    }
    server->ranks = ranks;
    pthread_mutex_init(&server->lock, NULL);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int error = start(server);
    if (error) {
        dpb_error("cannot serve a rendezvous of %d ranks: %s", ranks, strerror(error));
        release(server);
        return DPB_ERR_UNAVAILABLE;
    }
    *opened = server;
    return DPB_OK;
}

static void wake_up(dpb_rendezvous_server *server)
{
    const uint64_t one = 1;
    ssize_t sent = write(server->wake_fd, &one, sizeof(one));
    (void)sent; /* full: it is awake */
}

dpb_status dpb_rendezvous_server_give(dpb_rendezvous_server *server, int fd,
                                      const struct dpb_net_address *from)
{
    pthread_mutex_lock(&server->lock);
    struct given *given = realloc(server->given, (server->given_count + 1) * sizeof(*given));
    if (given) {
        server->given = given;
        given[server->given_count++] = (struct given){fd, *from};
    }
    pthread_mutex_unlock(&server->lock);
    if (!given) {
        dpb_error("the rendezvous cannot take the connection from %s: out of memory", from->host);
        close(fd);
        return DPB_ERR_NO_MEMORY;
    }
    wake_up(server);
    return DPB_OK;
}

void dpb_rendezvous_server_close(dpb_rendezvous_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->lock);
    server->stops = true;
    pthread_mutex_unlock(&server->lock);
    wake_up(server);
    pthread_join(server->thread, NULL);
    release(server);
}
