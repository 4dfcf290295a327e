#include "worker_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dpb_channel.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "worker_tcp.h"

struct worker_link {
    dpb_json *job;
    struct worker_place place;
    struct dpb_board_line *line;
    /* of a rank that a crew started: */
    struct worker_tcp *tcp; /* NULL: this rank was forked, and has inherited files */
    struct dpb_board_line own_line;
    char address[DPB_NET_ADDRESS_BYTES], token[DPB_NET_TOKEN_TEXT];
    struct dpb_comm_server server;
};

/* ---- open ---- */

static dpb_status map_board(worker_link *link)
{
    struct dpb_board_line *board = mmap(NULL, (size_t)link->place.size * sizeof(*board),
                                        PROT_READ | PROT_WRITE, MAP_SHARED, DPB_WORKER_FD_BOARD, 0);
    if (board == MAP_FAILED) {
        dpb_error("cannot map the ranks' board: %s", strerror(errno));
        return DPB_ERR_NO_MEMORY;
    }
    link->line = &board[link->place.rank];
    return DPB_OK;
}

static int place_number(const dpb_json *job, const char *key, int otherwise)
{
    return (int)dpb_json_as_int(dpb_json_get(dpb_json_get(job, "place"), key), otherwise);
}

static void read_place(worker_link *link)
{
    const int rank = (int)dpb_json_as_int(dpb_json_get(link->job, "rank"), 0);
    const int size = (int)dpb_json_as_int(dpb_json_get(link->job, "size"), 1);
    link->place = (struct worker_place){
            .rank = rank,
            .size = size,
            .node = place_number(link->job, "node", 0),
            .nodes = place_number(link->job, "nodes", 1),
            .local_rank = place_number(link->job, "local_rank", rank),
            .local_size = place_number(link->job, "local_size", size),
            .ranks_per_node = place_number(link->job, "ranks_per_node", size),
    };
    char prefix[32];
    snprintf(prefix, sizeof(prefix), "rank %d", rank);
    dpb_log_set_prefix(prefix);
}

/* The token is a secret: children of this process, and cores of them, must not have it. */
static dpb_status take_environment(worker_link *link, struct dpb_net_address *to,
                                   struct dpb_net_token *token)
{
    char why[256];
    const char *address = getenv(DPB_WORKER_ADDRESS_VARIABLE);
    const char *secret = getenv(DPB_WORKER_TOKEN_VARIABLE);
    if (!secret) {
        dpb_error("%s is \"%s\", but %s is not set", DPB_WORKER_ADDRESS_VARIABLE, address,
                  DPB_WORKER_TOKEN_VARIABLE);
        return DPB_ERR_UNAVAILABLE;
    }
    dpb_status st = dpb_net_token_from_text(secret, token);
    unsetenv(DPB_WORKER_TOKEN_VARIABLE);
    DPB_TRY(st);
    if (dpb_net_address_parse(address, -1, to, why, sizeof(why)) != DPB_OK) {
        dpb_error("%s is \"%s\": %s", DPB_WORKER_ADDRESS_VARIABLE, address, why);
        return DPB_ERR_UNAVAILABLE;
    }
    dpb_net_address_text(to, link->address);
    dpb_net_token_text(token, link->token);
    link->server = (struct dpb_comm_server){.address = link->address, .token = link->token};
    return DPB_OK;
}

static dpb_status open_remote(worker_link *link)
{
    struct dpb_net_address to;
    struct dpb_net_token token;
    DPB_TRY(take_environment(link, &to, &token));
    link->line = &link->own_line;
    DPB_TRY(worker_tcp_open(&to, &token, link->line, &link->tcp));
    link->job = worker_tcp_job(link->tcp);
    worker_tcp_set_silence(link->tcp, dpb_json_as_int(dpb_json_get(link->job, "silence_ns"),
                                                      DPB_LAUNCHER_SILENCE_NS));
    read_place(link);
    return DPB_OK;
}

static dpb_status open_inherited(worker_link *link)
{
    if (dpb_message_receive(DPB_WORKER_FD_CHANNEL, &link->job) != DPB_OK) {
        dpb_error("`dpbench " DPB_WORKER_VERB "` is for the launcher, not for people");
        return DPB_ERR_UNAVAILABLE;
    }
    read_place(link);
    return map_board(link);
}

dpb_status worker_link_open(worker_link **opened)
{
    *opened = NULL;
    worker_link *link = aligned_alloc(_Alignof(worker_link), sizeof(*link));
    if (!link)
        return DPB_ERR_NO_MEMORY;
    memset(link, 0, sizeof(*link));
    dpb_status st = getenv(DPB_WORKER_ADDRESS_VARIABLE) ? open_remote(link) : open_inherited(link);
    if (st < 0 && !link->job) {
        free(link);
        return st;
    }
    *opened = link;
    if (st == DPB_OK)
        dpb_board_write(link->line, 0, DPB_PHASE_SETUP, -1);
    return st;
}

/* ---- use ---- */

const dpb_json *worker_link_job(const worker_link *link)
{
    return link->job;
}

const struct worker_place *worker_link_place(const worker_link *link)
{
    return &link->place;
}

struct dpb_board_line *worker_link_line(worker_link *link)
{
    return link->line;
}

void worker_link_comm(const worker_link *link, int ranks_per_node, struct dpb_comm_config *config)
{
    const struct worker_place *place = &link->place;
    config->rank = place->rank;
    config->size = place->size;
    config->local_rank = place->local_rank;
    config->node = place->node;
    config->ranks_per_node = place->nodes == 1           ? ranks_per_node
                             : place->ranks_per_node > 0 ? place->ranks_per_node
                                                         : -1;
    config->segment_fd = link->tcp ? -1 : DPB_WORKER_FD_SEGMENT;
    config->server = link->tcp ? &link->server : NULL;
}

dpb_status worker_link_send(worker_link *link, const dpb_json *message)
{
    if (!link->tcp)
        return dpb_message_send(DPB_WORKER_FD_CHANNEL, message);
    struct dpb_str frame = {0};
    dpb_status st = dpb_message_append(&frame, message);
    if (st == DPB_OK)
        st = worker_tcp_send(link->tcp, &frame);
    dpb_str_release(&frame);
    return st;
}

static dpb_status write_bulk(const char *bytes, size_t count, off_t at)
{
    for (size_t done = 0; done < count;) {
        ssize_t written = pwrite(DPB_WORKER_FD_BULK, bytes + done, count - done, at + (off_t)done);
        if (written <= 0)
            return DPB_ERR_IO;
        done += (size_t)written;
    }
    return DPB_OK;
}

static dpb_status send_bulk(worker_link *link, const char *bytes, size_t count, int64_t at)
{
    const size_t piece_bytes = 65536;
    struct dpb_str piece = {0}, frame = {0};
    dpb_status st = DPB_OK;
    for (size_t done = 0; done < count && st == DPB_OK;) {
        const size_t now = count - done < piece_bytes ? count - done : piece_bytes;
        const int64_t first = at + (int64_t)done;
        piece.length = frame.length = 0;
        dpb_str_append_bytes(&piece, &first, sizeof(first));
        dpb_str_append_bytes(&piece, bytes + done, now);
        dpb_frame_append(&frame, DPB_FRAME_BULK, piece.text, piece.length);
        errno = piece.failed || frame.failed ? ENOMEM : ECONNRESET;
        st = errno == ENOMEM ? DPB_ERR_IO : worker_tcp_send(link->tcp, &frame);
        done += now;
    }
    dpb_str_release(&piece);
    dpb_str_release(&frame);
    return st == DPB_OK ? DPB_OK : DPB_ERR_IO;
}

dpb_status worker_link_put(worker_link *link, const void *bytes, size_t count, int64_t at)
{
    return link->tcp ? send_bulk(link, bytes, count, at) : write_bulk(bytes, count, (off_t)at);
}

/* ---- close ---- */

void worker_link_close(worker_link *link, dpb_status st)
{
    if (!link || (link->tcp && !worker_tcp_close(link->tcp, st)))
        return;
    dpb_json_free(link->job);
    free(link);
}
