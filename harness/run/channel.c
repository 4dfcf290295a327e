#include "dpb_channel.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LENGTH_BITS 56
#define FILL_BYTES  (1u << 20) /* at once, so that one peer that sends much does not keep others */

dpb_status dpb_bytes_send(int fd, const void *bytes, size_t count)
{
    const char *next = bytes;
    while (count > 0) {
        ssize_t sent = send(fd, next, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return DPB_ERR_RANK_FAILED;
        next += sent;
        count -= (size_t)sent;
    }
    return DPB_OK;
}

dpb_status dpb_outbox_flush(int fd, struct dpb_str *outbox)
{
    size_t done = 0;
    while (done < outbox->length) {
        ssize_t sent =
                send(fd, outbox->text + done, outbox->length - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return DPB_ERR_RANK_FAILED;
        if (sent < 0)
            break;
        done += (size_t)sent;
    }
    outbox->length -= done;
    if (done > 0)
        memmove(outbox->text, outbox->text + done, outbox->length);
    return outbox->length > 0 ? DPB_PENDING : DPB_OK;
}

/* DPB_END when the stream ends before the first byte. */
static dpb_status receive_all(int fd, char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = recv(fd, bytes + done, count - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return DPB_ERR_RANK_FAILED;
        if (got == 0)
            return done == 0 ? DPB_END : DPB_ERR_RANK_FAILED;
        done += (size_t)got;
    }
    return DPB_OK;
}

static uint64_t frame_word(enum dpb_frame_kind kind, size_t count)
{
    return (uint64_t)kind << LENGTH_BITS | count;
}

void dpb_frame_append(struct dpb_str *out, enum dpb_frame_kind kind, const void *bytes,
                      size_t count)
{
    const uint64_t word = frame_word(kind, count);
    dpb_str_append_bytes(out, &word, sizeof(word));
    dpb_str_append_bytes(out, bytes, count);
}

dpb_status dpb_message_append(struct dpb_str *out, const dpb_json *message)
{
    const size_t begin = out->length;
    uint64_t word = 0;
    dpb_str_append_bytes(out, &word, sizeof(word));
    DPB_TRY(dpb_json_write(message, false, out));
    if (out->failed)
        return DPB_ERR_NO_MEMORY;
    word = frame_word(DPB_FRAME_MESSAGE, out->length - begin - sizeof(word));
    memcpy(out->text + begin, &word, sizeof(word));
    return DPB_OK;
}

dpb_status dpb_message_send(int fd, const dpb_json *message)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_message_append(&text, message);
    if (st == DPB_OK)
        st = dpb_bytes_send(fd, text.text, text.length);
    dpb_str_release(&text);
    return st;
}

dpb_status dpb_message_receive(int fd, dpb_json **message)
{
    uint64_t length;
    dpb_status st = receive_all(fd, (char *)&length, sizeof(length));
    if (st != DPB_OK)
        return st;
    struct dpb_str inbox = {0};
    dpb_str_append_bytes(&inbox, &length, sizeof(length));
    char chunk[65536];
    for (uint64_t left = length; left > 0 && length <= DPB_MESSAGE_BYTES_MAX;) {
        size_t part = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);
        DPB_TRY_GOTO(st, receive_all(fd, chunk, part), out);
        dpb_str_append_bytes(&inbox, chunk, part);
        left -= part;
    }
    st = dpb_inbox_take(&inbox, message);
out:
    dpb_str_release(&inbox);
    return st == DPB_OK ? DPB_OK : DPB_ERR_RANK_FAILED;
}

dpb_status dpb_inbox_fill(int fd, struct dpb_str *inbox)
{
    char chunk[65536];
    for (size_t filled = 0; filled < FILL_BYTES;) {
        ssize_t got = recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? DPB_OK : DPB_END;
        errno = 0;
        if (got == 0)
            return DPB_END;
        dpb_str_append_bytes(inbox, chunk, (size_t)got);
        if (inbox->failed)
            return DPB_ERR_NO_MEMORY;
        filled += (size_t)got;
    }
    return DPB_OK;
}

dpb_status dpb_inbox_peek(const struct dpb_str *inbox, struct dpb_frame *frame)
{
    uint64_t word;
    if (inbox->length < sizeof(word))
        return DPB_PENDING;
    memcpy(&word, inbox->text, sizeof(word));
    const uint64_t kind = word >> LENGTH_BITS, length = word & ((1ull << LENGTH_BITS) - 1);
    if (kind >= DPB_FRAME_COUNT || length > DPB_MESSAGE_BYTES_MAX)
        return DPB_ERR_CORRUPT;
    if (inbox->length < sizeof(word) + length)
        return DPB_PENDING;
    *frame = (struct dpb_frame){(enum dpb_frame_kind)kind, inbox->text + sizeof(word),
                                (size_t)length};
    return DPB_OK;
}

void dpb_inbox_drop(struct dpb_str *inbox, const struct dpb_frame *frame)
{
    const size_t whole = sizeof(uint64_t) + frame->count;
    memmove(inbox->text, inbox->text + whole, inbox->length - whole);
    inbox->length -= whole;
    inbox->text[inbox->length] = '\0';
}

dpb_status dpb_inbox_take(struct dpb_str *inbox, dpb_json **message)
{
    struct dpb_frame frame;
    char why[256];
    dpb_status st = dpb_inbox_peek(inbox, &frame);
    if (st != DPB_OK)
        return st;
    if (frame.kind != DPB_FRAME_MESSAGE)
        return DPB_ERR_CORRUPT;
    DPB_TRY(dpb_json_parse(frame.bytes, frame.count, message, why));
    dpb_inbox_drop(inbox, &frame);
    return DPB_OK;
}
