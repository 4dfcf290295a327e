#include "dpb_test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "dpb_channel.h"

struct pair {
    int a, b;
};

static struct pair make_pair(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    return (struct pair){fds[0], fds[1]};
}

static void test_message_comes_back_equal(void **state)
{
    (void)state;
    struct pair p = make_pair();
    dpb_json *sent = dpb_json_object(), *got = NULL;
    dpb_json_set_int(sent, "ns", 1764577281123456789);
    dpb_json_set_string(sent, "text", "a \"b\"\n\x01");
    assert_int_equal(dpb_message_send(p.a, sent), DPB_OK);
    assert_int_equal(dpb_message_receive(p.b, &got), DPB_OK);
    assert_int_equal(dpb_json_as_int(dpb_json_get(got, "ns"), 0), 1764577281123456789);
    assert_string_equal(dpb_json_as_string(dpb_json_get(got, "text"), ""), "a \"b\"\n\x01");
    dpb_json_free(sent);
    dpb_json_free(got);
    close(p.a);
    assert_int_equal(dpb_message_receive(p.b, &got), DPB_END);
    close(p.b);
}

static void test_closed_peer_is_an_error_not_a_signal(void **state)
{
    (void)state;
    struct pair p = make_pair();
    dpb_json *message = dpb_json_object();
    close(p.b);
    assert_int_equal(dpb_message_send(p.a, message), DPB_ERR_RANK_FAILED);
    dpb_json_free(message);
    close(p.a);
}

/* A message that arrives byte by byte is whole only with its last byte; two at once are two. */
static void test_inbox_reassembles(void **state)
{
    (void)state;
    struct pair p = make_pair(), q = make_pair();
    dpb_json *message = dpb_json_object(), *got = NULL;
    dpb_json_set_int(message, "n", 1);
    assert_int_equal(dpb_message_send(p.a, message), DPB_OK);
    assert_int_equal(dpb_message_send(p.a, message), DPB_OK);
    char bytes[256];
    ssize_t count = read(p.b, bytes, sizeof(bytes));
    assert_true(count > 16);
    struct dpb_str inbox = {0};
    int whole = 0;
    for (ssize_t i = 0; i < count; i++) {
        assert_int_equal(write(q.a, &bytes[i], 1), 1);
        assert_int_equal(dpb_inbox_fill(q.b, &inbox), DPB_OK);
        dpb_status st = dpb_inbox_take(&inbox, &got);
        bool last = i + 1 == count / 2 || i + 1 == count;
        assert_int_equal(st, last ? DPB_OK : DPB_PENDING);
        if (st == DPB_OK) {
            whole++;
            dpb_json_free(got);
        }
    }
    assert_int_equal(whole, 2);
    close(q.a);
    assert_int_equal(dpb_inbox_fill(q.b, &inbox), DPB_END);
    dpb_str_release(&inbox);
    dpb_json_free(message);
    close(p.a);
    close(p.b);
    close(q.b);
}

static void test_inbox_refuses_nonsense(void **state)
{
    (void)state;
    struct dpb_str inbox = {0};
    dpb_json *got = NULL;
    uint64_t length = DPB_MESSAGE_BYTES_MAX + 1;
    dpb_str_append_bytes(&inbox, &length, sizeof(length));
    assert_int_equal(dpb_inbox_take(&inbox, &got), DPB_ERR_CORRUPT);
    dpb_str_release(&inbox);
    length = 3;
    dpb_str_append_bytes(&inbox, &length, sizeof(length));
    dpb_str_append(&inbox, "{x}");
    assert_int_equal(dpb_inbox_take(&inbox, &got), DPB_ERR_CORRUPT);
    dpb_str_release(&inbox);
}

/* All kinds in one stream, in pieces as a network cuts it. */
static void test_frames_come_one_by_one(void **state)
{
    (void)state;
    const struct dpb_beat beat = {.changed_ns = 5, .step = 17, .phase = 3, .bucket = -1};
    struct dpb_str sent = {0}, inbox = {0};
    struct dpb_frame frame;
    dpb_json *message = dpb_json_object();
    dpb_frame_append(&sent, DPB_FRAME_BEAT, &beat, sizeof(beat));
    assert_int_equal(dpb_message_append(&sent, message), DPB_OK);
    dpb_frame_append(&sent, DPB_FRAME_LEAVE, NULL, 0);
    dpb_json_free(message);
    const enum dpb_frame_kind kinds[] = {DPB_FRAME_BEAT, DPB_FRAME_MESSAGE, DPB_FRAME_LEAVE};
    size_t seen = 0;
    for (size_t i = 0; i < sent.length; i++) {
        dpb_str_append_bytes(&inbox, sent.text + i, 1);
        dpb_status st = dpb_inbox_peek(&inbox, &frame);
        if (st == DPB_PENDING)
            continue;
        assert_int_equal(st, DPB_OK);
        assert_int_equal(frame.kind, kinds[seen++]);
        if (frame.kind == DPB_FRAME_BEAT)
            assert_memory_equal(frame.bytes, &beat, sizeof(beat));
        dpb_inbox_drop(&inbox, &frame);
    }
    assert_int_equal(seen, 3);
    assert_int_equal(inbox.length, 0);
    dpb_str_release(&sent);
    dpb_str_release(&inbox);
}

/* A peer that reads nothing holds up nobody, and gets all when it reads. */
static void test_outbox_does_not_block(void **state)
{
    (void)state;
    struct pair p = make_pair();
    struct dpb_str outbox = {0};
    char bytes[4096] = {0};
    dpb_status st;
    size_t sent = 0, got = 0;
    do {
        sent += sizeof(bytes);
        dpb_str_append_bytes(&outbox, bytes, sizeof(bytes));
        st = dpb_outbox_flush(p.a, &outbox);
    } while (st == DPB_OK);
    assert_int_equal(st, DPB_PENDING);
    while (got < sent) {
        (void)dpb_outbox_flush(p.a, &outbox);
        ssize_t now = read(p.b, bytes, sizeof(bytes));
        assert_true(now > 0);
        got += (size_t)now;
    }
    assert_int_equal(got, sent);
    assert_int_equal(outbox.length, 0);
    close(p.b);
    dpb_str_append(&outbox, "nobody");
    assert_int_equal(dpb_outbox_flush(p.a, &outbox), DPB_ERR_RANK_FAILED);
    dpb_str_release(&outbox);
    close(p.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_message_comes_back_equal),
            cmocka_unit_test(test_closed_peer_is_an_error_not_a_signal),
            cmocka_unit_test(test_inbox_reassembles),
            cmocka_unit_test(test_inbox_refuses_nonsense),
            cmocka_unit_test(test_frames_come_one_by_one),
            cmocka_unit_test(test_outbox_does_not_block),
    };
    return DPB_RUN_TESTS(tests);
}
