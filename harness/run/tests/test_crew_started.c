/* Processes that "somebody else" started: this test forks them, with torchrun's variables, and each
 * opens a crew. Their ranks are this binary again: one notes what it was told, and ends, fails or
 * stays, as the address that it was given says. */
#include "dpb_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../base/tests/log_capture.h"
#include "dpb_channel.h"
#include "dpb_claim.h"
#include "dpb_clock.h"
#include "dpb_crew.h"
#include "dpb_launcher.h"

#define SIZE 3

enum act {
    ENDS = 1,
    FAILS, /* rank 1 does */
    STAYS
};

static char folder[] = "/tmp/dpb-started-XXXXXX";

/* ---- a rank ---- */

static void note(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "a");
    if (!file)
        _exit(9);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static int be_a_rank(void)
{
    char text[256];
    const char *address = getenv(DPB_WORKER_ADDRESS_VARIABLE), *rank = getenv("RANK");
    const int act = atoi(strrchr(address, ':') + 1);
    snprintf(folder, sizeof(folder), "%s", getenv("DPB_TEST_FOLDER"));
    snprintf(text, sizeof(text), "%s of %s, a token of %zu", rank, getenv("WORLD_SIZE"),
             strlen(getenv(DPB_WORKER_TOKEN_VARIABLE)));
    note("ranks", text);
    while (act == STAYS)
        pause();
    return act == FAILS && strcmp(rank, "1") == 0 ? 7 : 0;
}

/* ---- a process ---- */

static dpb_status open_crew(int rank, int size, const char *settings, dpb_crew **crew,
                            dpb_status *verdict)
{
    char number[16];
    struct dpb_crew_options options = {.launcher = DPB_LAUNCHER_TORCHRUN,
                                       .rendezvous_timeout_ns = 60000000000ll};
    snprintf(options.rendezvous, sizeof(options.rendezvous), "file:%s/meet", folder);
    snprintf(number, sizeof(number), "%d", rank);
    setenv("RANK", number, 1);
    snprintf(number, sizeof(number), "%d", size);
    setenv("WORLD_SIZE", number, 1);
    return dpb_crew_open(&options, settings, NULL, crew, verdict);
}

static pid_t others[SIZE];

/* Ranks 1 and up, whose exit code is the driver's verdict. */
static dpb_crew *open_all(void)
{
    dpb_crew *crew = NULL;
    dpb_status verdict = DPB_OK;
    for (int r = 1; r < SIZE; r++) {
        others[r] = fork();
        if (others[r] == 0) {
            dpb_status st = open_crew(r, SIZE, "same", &crew, &verdict);
            _exit(st == DPB_END ? dpb_status_exit_code(verdict) : 99);
        }
    }
    assert_int_equal(open_crew(0, SIZE, "same", &crew, &verdict), DPB_OK);
    return crew;
}

static void close_all(dpb_crew *crew, dpb_status verdict, int exit_code)
{
    dpb_crew_close(crew, verdict);
    for (int r = 1; r < SIZE; r++) {
        int status = 0;
        assert_int_equal(waitpid(others[r], &status, 0), others[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), exit_code);
    }
}

static void start(dpb_crew *crew, int ranks, enum act act)
{
    struct dpb_net_address address = {.host = "127.0.0.1", .port = act};
    struct dpb_net_token token;
    struct dpb_world world;
    dpb_crew_token(crew, &token);
    assert_int_equal(dpb_crew_map(crew, ranks, 0, &world), DPB_OK);
    assert_int_equal(world.ranks, ranks);
    assert_int_equal(world.nodes, 1);
    assert_int_equal(dpb_crew_start(crew, &world, ranks, &address, &token), DPB_OK);
    dpb_world_release(&world);
}

static dpb_status wait_for_end(dpb_crew *crew, char *how, size_t how_bytes)
{
    dpb_status st;
    while ((st = dpb_crew_check(crew, how, how_bytes)) == DPB_PENDING)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    return st;
}

/* Lines that ranks have noted, and none of them is read twice. */
static int count_notes(const char *line)
{
    char path[256], text[256];
    int count = 0;
    snprintf(path, sizeof(path), "%s/ranks", folder);
    FILE *file = fopen(path, "r");
    while (file && fgets(text, sizeof(text), file))
        count += strncmp(text, line, strlen(line)) == 0;
    if (file)
        fclose(file);
    return count;
}

static void forget_notes(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/ranks", folder);
    unlink(path);
}

/* ---- tests ---- */

static void test_launches_of_all_and_of_some(void **state)
{
    char how[256] = "";
    (void)state;
    dpb_crew *crew = open_all();
    assert_true(dpb_crew_is_started(crew));
    assert_int_equal(dpb_crew_ranks_max(crew), SIZE);
    start(crew, SIZE, ENDS);
    assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_OK);
    dpb_crew_stop(crew, false);
    assert_int_equal(count_notes("0 of 3, a token of 64"), 1);
    assert_int_equal(count_notes("1 of 3, a token of 64"), 1);
    assert_int_equal(count_notes("2 of 3, a token of 64"), 1);
    forget_notes();
    start(crew, 2, ENDS);
    assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_OK);
    dpb_crew_stop(crew, false);
    assert_int_equal(count_notes("0 of 2"), 1);
    assert_int_equal(count_notes("1 of 2"), 1);
    assert_int_equal(count_notes("2 "), 0);
    close_all(crew, DPB_ERR_CHECK, 1);
}

static void test_a_rank_that_fails_is_named(void **state)
{
    char how[256] = "";
    (void)state;
    dpb_crew *crew = open_all();
    start(crew, SIZE, FAILS);
    assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(how, "rank 1 exited with code 7 on "));
    dpb_crew_stop(crew, false);
    start(crew, SIZE, ENDS); /* the next launch is none the worse */
    assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_OK);
    close_all(crew, DPB_OK, 0);
}

static void test_stop_ends_all_ranks(void **state)
{
    char how[256] = "";
    (void)state;
    forget_notes();
    dpb_crew *crew = open_all();
    start(crew, SIZE, STAYS);
    while (count_notes("") < SIZE)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    assert_int_equal(dpb_crew_check(crew, how, sizeof(how)), DPB_PENDING);
    dpb_crew_stop(crew, false);
    assert_int_equal(dpb_crew_check(crew, how, sizeof(how)), DPB_OK);
    close_all(crew, DPB_OK, 0);
}

static void test_a_process_that_is_gone(void **state)
{
    char how[256] = "";
    (void)state;
    dpb_crew *crew = open_all();
    start(crew, SIZE, STAYS);
    kill(others[2], SIGKILL);
    assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(how, "rank 2's process (pid "));
    dpb_crew_stop(crew, false);
    dpb_crew_close(crew, DPB_ERR_RANK_FAILED);
    int status = 0;
    assert_int_equal(waitpid(others[1], &status, 0), others[1]);
    assert_int_equal(WEXITSTATUS(status), 4);
    assert_int_equal(waitpid(others[2], &status, 0), others[2]);
}

/* Rank 1 by hand: it tells the driver twice how a launch ended, the second time in the next one. */
static _Noreturn void tell_twice(void)
{
    char path[256], where[DPB_NET_ADDRESS_BYTES], secret[DPB_NET_TOKEN_TEXT], why[256];
    struct dpb_net_address address;
    struct dpb_net_token token;
    struct dpb_world_claim claim;
    dpb_json *message = NULL;
    FILE *file;
    int fd = -1, read = 0;
    snprintf(path, sizeof(path), "%s/meet", folder);
    while (read != 2) {
        file = fopen(path, "r");
        read = file ? fscanf(file, "%271s %64s", where, secret) : 0;
        if (file)
            fclose(file);
    }
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    bool well = dpb_net_address_parse(where, -1, &address, why, sizeof(why)) == DPB_OK &&
                dpb_net_token_from_text(secret, &token) == DPB_OK &&
                dpb_net_connect(&address, &token, "member", dpb_clock_now_ns() + 60000000000ll,
                                &fd) == DPB_OK &&
                dpb_claim_self(&claim) == DPB_OK;
    snprintf(claim.settings, sizeof(claim.settings), "same");
    dpb_json *json = dpb_claim_to_json(&claim);
    well = well && dpb_message_send(fd, json) == DPB_OK;
    dpb_json *ended = dpb_json_object();
    dpb_json_set_string(ended, "type", "ended");
    dpb_json_set_int(ended, "status", DPB_OK);
    for (int launch = 1; well && launch <= 2; launch++) {
        well = dpb_message_receive(fd, &message) == DPB_OK;
        if (launch == 2) {
            well = well && dpb_message_send(fd, ended) == DPB_OK;
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 300000000);
            note("ranks", "late");
        }
        dpb_json_set(ended, "launch", dpb_json_copy(dpb_json_get(message, "launch")));
        well = well && dpb_message_send(fd, ended) == DPB_OK;
        dpb_json_free(message);
    }
    well = well && dpb_message_receive(fd, &message) == DPB_OK; /* the end */
    _exit(well ? 0 : 9);
}

static void test_an_end_of_an_earlier_launch(void **state)
{
    char how[256] = "";
    int status = 0;
    (void)state;
    dpb_crew *crew = NULL;
    dpb_status verdict = DPB_OK;
    const pid_t other = fork();
    if (other == 0)
        tell_twice();
    assert_int_equal(open_crew(0, 2, "same", &crew, &verdict), DPB_OK);
    for (int launch = 1; launch <= 2; launch++) {
        assert_int_equal(count_notes("late"), 0);
        start(crew, 2, ENDS);
        assert_int_equal(wait_for_end(crew, how, sizeof(how)), DPB_OK);
        dpb_crew_stop(crew, false);
    }
    assert_int_equal(count_notes("late"), 1);
    dpb_crew_close(crew, DPB_OK);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

/* Without its driver a process ends by itself, and its rank with it. */
static void test_a_driver_that_is_gone(void **state)
{
    (void)state;
    forget_notes();
    const pid_t driver = fork();
    if (driver == 0) {
        dpb_crew *crew = NULL;
        dpb_status verdict;
        if (open_crew(0, 2, "same", &crew, &verdict) != DPB_OK)
            _exit(9);
        struct dpb_net_address address = {.host = "127.0.0.1", .port = STAYS};
        struct dpb_net_token token;
        dpb_crew_token(crew, &token);
        if (dpb_crew_start(crew, NULL, 2, &address, &token) != DPB_OK)
            _exit(9);
        while (count_notes("") < 2)
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
        raise(SIGKILL);
    }
    dpb_crew *crew = NULL;
    dpb_status verdict = DPB_OK;
    assert_int_equal(open_crew(1, 2, "same", &crew, &verdict), DPB_END);
    assert_int_equal(verdict, DPB_ERR_RANK_FAILED);
    assert_int_equal(waitpid(driver, NULL, 0), driver);
}

static int setup(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    capture_stop();
    forget_notes();
    return 0;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
            TEST(test_launches_of_all_and_of_some), TEST(test_a_rank_that_fails_is_named),
            TEST(test_stop_ends_all_ranks),         TEST(test_a_process_that_is_gone),
            TEST(test_an_end_of_an_earlier_launch), TEST(test_a_driver_that_is_gone),
    };
    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0)
        return be_a_rank();
    if (!mkdtemp(folder))
        return 1;
    setenv("DPB_TEST_FOLDER", folder, 1);
    const int failed = DPB_RUN_TESTS(tests);
    char path[256];
    snprintf(path, sizeof(path), "%s/meet", folder); /* of the driver that was killed */
    unlink(path);
    rmdir(folder);
    return failed;
}
