#include "worker_tcp.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "dpb_claim.h"
#include "dpb_clock.h"
#include "dpb_launcher.h"
#include "dpb_log.h"

#define CONNECT_NS   30000000000ll /* the launcher listens before it starts anybody */
#define LEAVE_NS     5000000000ll  /* after an error was reported, for the launcher to hear of it */
#define LAST_WORDS_S 2             /* for a process that ends to say why */

struct worker_tcp {
    int fd, signal_fd;
    char launcher[DPB_NET_ADDRESS_BYTES];
    const struct dpb_board_line *line;
    pthread_t thread;
    struct dpb_str inbox; /* the thread's */
    _Atomic int64_t silence_ns;
    _Atomic bool leaving; /* all was said: the launcher's end is no news */

    pthread_mutex_t send_lock; /* one frame at a time */
    struct dpb_str rest;       /* of a frame of the thread, which must not block; goes first */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    dpb_json *job;
    bool may_leave;
};

/* ---- send ---- */

dpb_status worker_tcp_send(struct worker_tcp *tcp, const struct dpb_str *frames)
{
    dpb_status st = DPB_OK;
    pthread_mutex_lock(&tcp->send_lock);
    if (tcp->rest.length > 0)
        st = dpb_bytes_send(tcp->fd, tcp->rest.text, tcp->rest.length);
    tcp->rest.length = 0;
    if (st == DPB_OK)
        st = dpb_bytes_send(tcp->fd, frames->text, frames->length);
    pthread_mutex_unlock(&tcp->send_lock);
    return st;
}

/* Without blocking: false when it must be tried again later, because another frame is under way. */
static bool try_send(struct worker_tcp *tcp, enum dpb_frame_kind kind, const void *bytes,
                     size_t count)
{
    if (pthread_mutex_trylock(&tcp->send_lock) != 0)
        return false;
    const bool free_way = tcp->rest.length == 0 || dpb_outbox_flush(tcp->fd, &tcp->rest) == DPB_OK;
    if (free_way) {
        dpb_frame_append(&tcp->rest, kind, bytes, count);
        (void)dpb_outbox_flush(tcp->fd, &tcp->rest); /* a broken connection is seen by reading */
    }
    pthread_mutex_unlock(&tcp->send_lock);
    return free_way;
}

static bool send_beat(struct worker_tcp *tcp)
{
    const struct dpb_board_line *line = tcp->line;
    const struct dpb_beat beat = {
            .changed_ns = atomic_load_explicit(&line->beat_ns, memory_order_acquire),
            .step = atomic_load_explicit(&line->step, memory_order_relaxed),
            .phase = atomic_load_explicit(&line->phase, memory_order_relaxed),
            .bucket = atomic_load_explicit(&line->bucket, memory_order_relaxed),
    };
    return try_send(tcp, DPB_FRAME_BEAT, &beat, sizeof(beat));
}

/* ---- the end of the process ---- */

/* Other threads may hang in anything, the log included: it ends all the same. */
static _Noreturn void end_process(struct worker_tcp *tcp, const char *why)
{
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(LAST_WORDS_S);
    if (why && !atomic_load(&tcp->leaving))
        dpb_error("the launcher at %s %s: this rank ends", tcp->launcher, why);
    _exit(dpb_status_exit_code(DPB_ERR_RANK_FAILED));
}

/* mpirun and srun end the ranks that are left when one has failed; the launcher must not take this
 * one for the first. */
static _Noreturn void end_by_signal(struct worker_tcp *tcp)
{
    struct signalfd_siginfo info = {0};
    char text[64];
    if (read(tcp->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        info.ssi_signo = SIGTERM;
    snprintf(text, sizeof(text), "was ended by signal %d (%s)", (int)info.ssi_signo,
             strsignal((int)info.ssi_signo));
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "error");
    dpb_json_set_int(message, "status", DPB_ERR_RANK_FAILED);
    dpb_json_set_string(message, "text", text);
    dpb_json_set_bool(message, "ended", true);
    struct dpb_str frame = {0};
    if (dpb_json_write(message, false, &frame) == DPB_OK)
        (void)try_send(tcp, DPB_FRAME_MESSAGE, frame.text, frame.length);
    end_process(tcp, NULL);
}

/* ---- the thread ---- */

static void take_message(struct worker_tcp *tcp, const struct dpb_frame *frame)
{
    dpb_json *job = NULL;
    char why[256];
    if (dpb_json_parse(frame->bytes, frame->count, &job, why) != DPB_OK)
        end_process(tcp, "sent a job that cannot be read");
    pthread_mutex_lock(&tcp->lock);
    dpb_json_free(tcp->job);
    tcp->job = job;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
}

/* What the launcher said. `question` gets the last one that is not answered yet; true when this
 * rank may leave. */
static bool take_frames(struct worker_tcp *tcp, int64_t *question)
{
    struct dpb_frame frame;
    dpb_status st;
    bool may_leave = false;
    while ((st = dpb_inbox_peek(&tcp->inbox, &frame)) == DPB_OK) {
        struct dpb_clock_reading asked;
        if (frame.kind == DPB_FRAME_MESSAGE)
            take_message(tcp, &frame);
        if (frame.kind == DPB_FRAME_CLOCK && frame.count == sizeof(asked)) {
            memcpy(&asked, frame.bytes, sizeof(asked));
            *question = asked.question;
        }
        may_leave |= frame.kind == DPB_FRAME_LEAVE;
        dpb_inbox_drop(&tcp->inbox, &frame);
    }
    if (st < 0)
        end_process(tcp, "sent what cannot be read");
    return may_leave;
}

static void let_go(struct worker_tcp *tcp)
{
    if (!atomic_load(&tcp->leaving))
        end_process(tcp, NULL); /* it ended the launch, and says why itself */
    pthread_mutex_lock(&tcp->lock);
    tcp->may_leave = true;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
}

static void *serve(void *arg)
{
    struct worker_tcp *tcp = arg;
    struct pollfd fds[] = {{.fd = tcp->fd, .events = POLLIN},
                           {.fd = tcp->signal_fd, .events = POLLIN}};
    int64_t heard_ns = dpb_clock_now_ns(), next_beat_ns = heard_ns, question = 0;
    for (;;) {
        const int64_t wait_ns = next_beat_ns - dpb_clock_now_ns();
        const int wait_ms = question ? 1 : wait_ns > 0 ? (int)(wait_ns / 1000000) + 1 : 0;
        (void)poll(fds, 2, wait_ms);
        if (fds[1].revents & POLLIN)
            end_by_signal(tcp);
        const size_t before = tcp->inbox.length;
        dpb_status st = dpb_inbox_fill(tcp->fd, &tcp->inbox);
        int64_t now_ns = dpb_clock_now_ns();
        if (tcp->inbox.length > before)
            heard_ns = now_ns;
        if (take_frames(tcp, &question)) {
            let_go(tcp);
            return NULL;
        }
        if (st != DPB_OK)
            end_process(tcp, "is gone");
        if (now_ns - heard_ns > atomic_load(&tcp->silence_ns))
            end_process(tcp, "has not been heard of for too long");
        const struct dpb_clock_reading reading = {question, dpb_clock_now_ns()};
        if (question && try_send(tcp, DPB_FRAME_CLOCK, &reading, sizeof(reading)))
            question = 0;
        if (now_ns >= next_beat_ns && send_beat(tcp))
            next_beat_ns = now_ns + DPB_LAUNCHER_BEAT_NS;
        else if (now_ns >= next_beat_ns)
            next_beat_ns = now_ns + DPB_LAUNCHER_BEAT_NS / 10;
    }
}

/* ---- open, close ---- */

static dpb_status send_claim(struct worker_tcp *tcp)
{
    struct dpb_world_claim claim;
    struct dpb_str frame = {0};
    DPB_TRY(dpb_claim_self(&claim));
    dpb_json *json = dpb_claim_to_json(&claim);
    dpb_status st = dpb_message_append(&frame, json);
    if (st == DPB_OK)
        st = worker_tcp_send(tcp, &frame);
    if (st == DPB_ERR_RANK_FAILED)
        dpb_error("the launcher at %s closed the connection", tcp->launcher);
    dpb_json_free(json);
    dpb_str_release(&frame);
    return st;
}

/* The launcher decides what Ctrl-C means; SIGTERM is read by the thread alone. */
static dpb_status take_signals(struct worker_tcp *tcp)
{
    sigset_t terminate;
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    signal(SIGINT, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &terminate, NULL);
    tcp->signal_fd = signalfd(-1, &terminate, SFD_CLOEXEC | SFD_NONBLOCK);
    if (tcp->signal_fd >= 0)
        return DPB_OK;
    dpb_error("cannot wait for signals: %s", strerror(errno));
    return DPB_ERR_UNAVAILABLE;
}

static void release(struct worker_tcp *tcp)
{
    if (tcp->fd >= 0)
        close(tcp->fd);
    if (tcp->signal_fd >= 0)
        close(tcp->signal_fd);
    dpb_str_release(&tcp->inbox);
    dpb_str_release(&tcp->rest);
    dpb_json_free(tcp->job);
    free(tcp);
}

dpb_status worker_tcp_open(const struct dpb_net_address *to, const struct dpb_net_token *token,
                           const struct dpb_board_line *line, struct worker_tcp **opened)
{
    struct worker_tcp *tcp = calloc(1, sizeof(*tcp));
    if (!tcp)
        return DPB_ERR_NO_MEMORY;
    tcp->fd = tcp->signal_fd = -1;
    tcp->line = line;
    tcp->silence_ns = DPB_LAUNCHER_SILENCE_NS;
    pthread_mutex_init(&tcp->send_lock, NULL);
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&tcp->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    dpb_net_address_text(to, tcp->launcher);
    dpb_status st;
    DPB_TRY_GOTO(st, take_signals(tcp), err);
    DPB_TRY_GOTO(st, dpb_net_connect(to, token, "rank", dpb_clock_now_ns() + CONNECT_NS, &tcp->fd),
                 err);
    DPB_TRY_GOTO(st, send_claim(tcp), err);
    int failed = pthread_create(&tcp->thread, NULL, serve, tcp);
    if (failed == 0) {
        *opened = tcp;
        return DPB_OK;
    }
    dpb_error("cannot start the thread that listens to the launcher: %s", strerror(failed));
    st = DPB_ERR_UNAVAILABLE;
err:
    release(tcp);
    return st;
}

dpb_json *worker_tcp_job(struct worker_tcp *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    while (!tcp->job)
        pthread_cond_wait(&tcp->changed, &tcp->lock);
    dpb_json *job = tcp->job;
    tcp->job = NULL;
    pthread_mutex_unlock(&tcp->lock);
    return job;
}

void worker_tcp_set_silence(struct worker_tcp *tcp, int64_t silence_ns)
{
    atomic_store(&tcp->silence_ns, silence_ns);
}

bool worker_tcp_close(struct worker_tcp *tcp, dpb_status st)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + LEAVE_NS;
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                                      .tv_nsec = (long)(deadline_ns % 1000000000)};
    struct dpb_str closed = {0};
    int timed_out = 0;
    atomic_store(&tcp->leaving, true);
    dpb_frame_append(&closed, DPB_FRAME_CLOSED, NULL, 0);
    if (st == DPB_OK)
        (void)worker_tcp_send(tcp, &closed); /* nobody there: then the thread ends the process */
    dpb_str_release(&closed);
    pthread_mutex_lock(&tcp->lock);
    while (!tcp->may_leave && timed_out == 0)
        timed_out = st == DPB_OK ? pthread_cond_wait(&tcp->changed, &tcp->lock)
                                 : pthread_cond_timedwait(&tcp->changed, &tcp->lock, &deadline);
    const bool may_leave = tcp->may_leave;
    pthread_mutex_unlock(&tcp->lock);
    if (!may_leave)
        return false;
    pthread_join(tcp->thread, NULL);
    release(tcp);
    return true;
}
