#include "dpb_channel.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static dpb_status send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return DPB_ERR_RANK_FAILED;
        bytes += sent;
        count -= (size_t)sent;
    }
    return DPB_OK;
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

dpb_status dpb_message_send(int fd, const dpb_json *message)
{
    struct dpb_str text = {0};
    uint64_t length = 0;
    dpb_str_append_bytes(&text, &length, sizeof(length));
    dpb_status st = dpb_json_write(message, false, &text);
    if (st == DPB_OK && text.failed)
        st = DPB_ERR_NO_MEMORY;
    if (st == DPB_OK) {
        length = text.length - sizeof(length);
        memcpy(text.text, &length, sizeof(length));
        st = send_all(fd, text.text, text.length);
    }
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
    for (;;) {
        ssize_t got = recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? DPB_OK : DPB_END;
        if (got == 0)
            return DPB_END;
        dpb_str_append_bytes(inbox, chunk, (size_t)got);
        if (inbox->failed)
            return DPB_ERR_NO_MEMORY;
    }
}

dpb_status dpb_inbox_take(struct dpb_str *inbox, dpb_json **message)
{
    uint64_t length;
    if (inbox->length < sizeof(length))
        return DPB_PENDING;
    memcpy(&length, inbox->text, sizeof(length));
    if (length > DPB_MESSAGE_BYTES_MAX)
        return DPB_ERR_CORRUPT;
    size_t whole = sizeof(length) + (size_t)length;
    if (inbox->length < whole)
        return DPB_PENDING;
    char why[256];
    DPB_TRY(dpb_json_parse(inbox->text + sizeof(length), (size_t)length, message, why));
    memmove(inbox->text, inbox->text + whole, inbox->length - whole);
    inbox->length -= whole;
    inbox->text[inbox->length] = '\0';
    return DPB_OK;
}
