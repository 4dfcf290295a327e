#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_test.h"
#include "log_capture.h"

static int setup(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dpb_log_set_level(DPB_LOG_INFO);
    dpb_log_set_prefix(NULL);
    capture_stop();
    return 0;
}

static void test_words(void **state)
{
    (void)state;
    dpb_error("cannot open \"%s\"", "x");
    dpb_log_hint("create it");
    dpb_warn("slow");
    dpb_info("hello");
    dpb_debug("not shown");
    assert_string_equal(captured.text, "dpbench: error: cannot open \"x\"\n"
                                       "dpbench: hint: create it\n"
                                       "dpbench: warning: slow\n"
                                       "dpbench: hello\n");
}

static void test_level_hides_the_hint_too(void **state)
{
    (void)state;
    dpb_log_set_level(DPB_LOG_ERROR);
    dpb_warn("a");
    dpb_log_hint("b");
    assert_string_equal(captured.text, "");
    dpb_error("c");
    dpb_log_hint("d");
    assert_string_equal(captured.text, "dpbench: error: c\ndpbench: hint: d\n");
    capture_start();
    dpb_log_set_level(DPB_LOG_DEBUG);
    dpb_debug("e");
    assert_string_equal(captured.text, "dpbench: debug: e\n");
}

static void test_prefix(void **state)
{
    (void)state;
    dpb_log_set_prefix("rank 1");
    dpb_error("x");
    dpb_log_set_prefix("0123456789012345678901234567890123456789");
    dpb_info("y");
    dpb_log_set_prefix(NULL);
    dpb_info("z");
    assert_string_equal(captured.text, "dpbench: rank 1: error: x\n"
                                       "dpbench: 0123456789012345678901234567890: y\n"
                                       "dpbench: z\n");
}

static void test_control_characters(void **state)
{
    (void)state;
    dpb_info("a\nb\x1b[31m\x7f é");
    assert_string_equal(captured.text, "dpbench: a\\x0ab\\x1b[31m\\x7f é\n");
}

/* Bytes of strangers are logged too. Terminals obey U+009B as ESC [. */
static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    dpb_info("a\xc2\x9b"
             "2J b\x9b c\xc3");
    dpb_info("\xff\xe2\x82 \xc0\x80 €😀\xc2\xa0|");
    assert_string_equal(captured.text, "dpbench: a\\xc2\\x9b2J b\\x9b c\\xc3\n"
                                       "dpbench: \\xff\\xe2\\x82 \\xc0\\x80 €😀\xc2\xa0|\n");
}

static char forwarded[256];
static enum dpb_log_level forwarded_level;

static void take_log(enum dpb_log_level level, const char *format, ...)
{
    va_list args;

    forwarded_level = level;
    va_start(args, format);
    vsnprintf(forwarded, sizeof(forwarded), format, args);
    va_end(args);
}

static void take_hint(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(forwarded, sizeof(forwarded), format, args);
    va_end(args);
}

/* The other copy decides about levels: here all are passed on. */
static void test_forwarded(void **state)
{
    (void)state;
    dpb_log_forward(&(struct dpb_log_functions){take_log, take_hint});
    dpb_log_set_level(DPB_LOG_ERROR);
    dpb_warn("%d%% of \"%s\"", 5, "x");
    assert_string_equal(forwarded, "5% of \"x\"");
    assert_int_equal(forwarded_level, DPB_LOG_WARN);
    dpb_log_hint("%s", "100%s");
    assert_string_equal(forwarded, "100%s");
    assert_string_equal(captured.text, "");
    dpb_log_forward(&(struct dpb_log_functions){NULL, NULL});
    dpb_error("here");
    assert_string_equal(captured.text, "dpbench: error: here\n");
}

static void test_long_lines_are_cut(void **state)
{
    static char text[9000];
    size_t i;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    dpb_info("%s", text);
    assert_int_equal(captured.length, 4096);
    assert_string_equal(captured.text + 4096 - 5, "x...\n");

    /* never inside a character: é is two bytes, so the cut falls between them for one of two */
    for (i = 0; i < 2; i++) {
        size_t j, end;

        text[0] = 'x';
        for (j = i; j + 1 < sizeof(text) - 1; j += 2)
            memcpy(text + j, "é", 2);
        capture_start();
        dpb_info("%s", text);
        assert_true(captured.length <= 4096);
        end = captured.length - strlen("...\n");
        assert_string_equal(captured.text + end, "...\n");
        assert_memory_equal(captured.text + end - 2, "é", 2);
    }

    /* nothing but stray continuation bytes, which is no text at all */
    memset(text, 0x80, sizeof(text) - 1);
    capture_start();
    dpb_info("%s", text);
    assert_true(captured.length <= 4096);
}

static void test_errno_stays(void **state)
{
    (void)state;
    errno = ENOSPC;
    dpb_error("x");
    assert_int_equal(errno, ENOSPC);
}

/* What goes to stderr: one line each, whole, from several threads. */
static void *shout(void *text)
{
    int i;

    for (i = 0; i < 200; i++)
        dpb_info("%s", (const char *)text);
    return NULL;
}

static void test_stderr_lines_are_whole(void **state)
{
    static const char *const texts[] = {"aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"};
    char path[] = "/tmp/dpb_test_log_XXXXXX";
    struct dpb_str content = {0};
    pthread_t threads[2];
    int fd = mkstemp(path), saved = dup(STDERR_FILENO), lines = 0;
    const char *line;
    size_t i;

    (void)state;
    assert_true(fd >= 0 && saved >= 0);
    dpb_log_set_sink(NULL, NULL);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, O_APPEND), 0);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shout, (void *)(uintptr_t)texts[i]), 0);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(fd);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    unlink(path);
    for (line = content.text; *line; line = strchr(line, '\n') + 1, lines++) {
        size_t length = strcspn(line, "\n");
        char whole[2][64];

        for (i = 0; i < 2; i++)
            snprintf(whole[i], sizeof(whole[i]), "dpbench: %s", texts[i]);
        assert_true((length == strlen(whole[0]) && strncmp(line, whole[0], length) == 0) ||
                    (length == strlen(whole[1]) && strncmp(line, whole[1], length) == 0));
    }
    assert_int_equal(lines, 400);
    dpb_str_release(&content);
}

/* A rank forked while another thread logs can log too, and does not wait for ever. */
static atomic_bool stop_shouting;

static void *shout_on(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop_shouting))
        dpb_info("busy");
    return NULL;
}

static void test_forked_child_can_log(void **state)
{
    int null = open("/dev/null", O_WRONLY), saved = dup(STDERR_FILENO), i;
    pthread_t thread;

    (void)state;
    assert_true(null >= 0 && saved >= 0);
    dpb_log_set_sink(NULL, NULL);
    assert_true(dup2(null, STDERR_FILENO) >= 0);
    assert_int_equal(pthread_create(&thread, NULL, shout_on, NULL), 0);
    for (i = 0; i < 100; i++) {
        pid_t child = fork();
        int exit_status = -1;

        if (child == 0) {
            dpb_info("child");
            _exit(7);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &exit_status, 0), child);
        assert_true(WIFEXITED(exit_status));
        assert_int_equal(WEXITSTATUS(exit_status), 7);
    }
    atomic_store(&stop_shouting, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_words, setup, teardown),
            cmocka_unit_test_setup_teardown(test_level_hides_the_hint_too, setup, teardown),
            cmocka_unit_test_setup_teardown(test_prefix, setup, teardown),
            cmocka_unit_test_setup_teardown(test_control_characters, setup, teardown),
            cmocka_unit_test_setup_teardown(test_bytes_that_are_no_text, setup, teardown),
            cmocka_unit_test_setup_teardown(test_forwarded, setup, teardown),
            cmocka_unit_test_setup_teardown(test_long_lines_are_cut, setup, teardown),
            cmocka_unit_test_setup_teardown(test_errno_stays, setup, teardown),
            cmocka_unit_test_setup_teardown(test_stderr_lines_are_whole, setup, teardown),
            cmocka_unit_test_setup_teardown(test_forked_child_can_log, setup, teardown),
    };

    return DPB_RUN_TESTS(tests);
}
