/* What a crew is made of: words, names of nodes, the file where processes meet, a process and its
 * end; and the command lines of mpirun and srun, asked of scripts that stand in for them. */
#include "dpb_test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../base/tests/log_capture.h"
#include "../crew_private.h"
#include "dpb_clock.h"
#include "dpb_launcher.h"

static int start(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    capture_stop();
    return 0;
}

static void join(const struct crew_words *words, struct dpb_str *text)
{
    dpb_str_append(text, "");
    for (size_t i = 0; i < words->count; i++)
        dpb_str_appendf(text, "%s%s", i > 0 ? "|" : "", words->items[i]);
}

/* ---- words ---- */

static void test_words(void **state)
{
    static const struct {
        const char *text, *words;
    } samples[] = {
            {"", ""},
            {"  ", ""},
            {"--oversubscribe", "--oversubscribe"},
            {"-x A=1  --mca btl tcp,self", "-x|A=1|--mca|btl|tcp,self"},
            {"'a b' \"c d\" e\\ f", "a b|c d|e f"},
            {"a'b c'd", "ab cd"},
            {"'' x", "|x"},
            {"$HOME `id` *", "$HOME|`id`|*"},
            {"'a\\b' \"a\\\"b\"", "a\\b|a\"b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct crew_words words = {0};
        struct dpb_str text = {0};
        assert_int_equal(crew_words_split(samples[i].text, &words), DPB_OK);
        join(&words, &text);
        assert_string_equal(text.text, samples[i].words);
        dpb_str_release(&text);
        crew_words_release(&words);
    }
}

static void test_open_quote(void **state)
{
    struct crew_words words = {0};
    (void)state;
    assert_int_equal(crew_words_split("a 'b c", &words), DPB_ERR_USAGE);
    assert_logged("--launcher-args: a quote is not closed in: a 'b c");
    crew_words_release(&words);
}

/* ---- names of nodes ---- */

static void test_nodelists(void **state)
{
    static const struct {
        const char *list, *names;
    } samples[] = {
            {"node1", "node1"},
            {"node[1-3]", "node1|node2|node3"},
            {"node[08-10,12]", "node08|node09|node10|node12"},
            {"a,b[1,3],c", "a|b1|b3|c"},
            {"rack1-node[1-2]-ib", "rack1-node1-ib|rack1-node2-ib"},
            {"", ""},
            {"node[1-", ""},
            {"node[x]", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct dpb_str names = {0};
        char name[64];
        dpb_str_append(&names, "");
        for (int n = 0; crew_nodelist_at(samples[i].list, n, name, sizeof(name)) == DPB_OK; n++)
            dpb_str_appendf(&names, "%s%s", n > 0 ? "|" : "", name);
        assert_string_equal(names.text, samples[i].names);
        dpb_str_release(&names);
    }
    char name[8];
    assert_int_equal(crew_nodelist_at(NULL, 0, name, sizeof(name)), DPB_END);
}

static void test_names_of_this_host(void **state)
{
    char own[256] = "", longer[300];
    (void)state;
    assert_int_equal(gethostname(own, sizeof(own) - 1), 0);
    own[strcspn(own, ".")] = '\0';
    snprintf(longer, sizeof(longer), "%s.example", own);
    assert_true(crew_is_this_host("localhost"));
    assert_true(crew_is_this_host("127.0.0.1"));
    assert_true(crew_is_this_host(own));
    assert_true(crew_is_this_host(longer));
    snprintf(longer, sizeof(longer), "%s0", own);
    assert_false(crew_is_this_host(longer));
    assert_false(crew_is_this_host("10.0.0.1"));
}

/* ---- a process ---- */

static void start_shell(struct crew_child *child, const char *script)
{
    char shell[] = "/bin/sh", option[] = "-c", text[256];
    char *argv[] = {shell, option, text, NULL};
    snprintf(text, sizeof(text), "%s", script);
    assert_int_equal(crew_child_start(child, shell, argv, environ, true), DPB_OK);
}

static dpb_status wait_for(struct crew_child *child, char *how, size_t how_bytes)
{
    dpb_status st;
    while ((st = crew_child_check(child, "mpirun", how, how_bytes)) == DPB_PENDING)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    return st;
}

static void test_ends_of_a_process(void **state)
{
    static const struct {
        const char *script;
        dpb_status st;
        const char *how;
    } samples[] = {
            {"exit 0", DPB_OK, ""},
            {"exit 3", DPB_ERR_RANK_FAILED, "mpirun exited with code 3"},
            {"echo -----; echo no; echo slots; echo -----; echo later; exit 1", DPB_ERR_RANK_FAILED,
             "mpirun exited with code 1: no slots"},
            {"kill -9 $$", DPB_ERR_RANK_FAILED, "mpirun was killed by signal 9 (Killed)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct crew_child child;
        char how[CREW_HOW_BYTES] = "";
        start_shell(&child, samples[i].script);
        assert_int_equal(wait_for(&child, how, sizeof(how)), samples[i].st);
        assert_string_equal(how, samples[i].how);
        crew_child_stop(&child);
        assert_int_equal(child.pid, 0);
    }
}

static void test_what_a_launcher_says(void **state)
{
    static const struct {
        const char *output, *text, *remedy;
    } samples[] = {
            {"", "", NULL},
            {"=====\n=   something =\n  else  \n\nlater", "something else", NULL},
            {"warning: a\n-----\nmpirun has detected an attempt to run as root.\n\nRunning as "
             "root is bad.\n\nWe reiterate our advice against doing so.\n-----\n",
             "mpirun has detected an attempt to run as root.", "OMPI_ALLOW_RUN_AS_ROOT=1"},
            {"-----\nThere are not enough slots available in the system to satisfy the 8\nslots "
             "that were requested by the application:\n\n  dpbench\n",
             "There are not enough slots available in the system to satisfy the 8 slots that were "
             "requested by the application:",
             "--oversubscribe"},
            {"ssh: Could not resolve hostname nowhere: Name or service not known\r\n-----\nORTE "
             "was unable to reliably start one or more daemons.\n",
             "ssh: Could not resolve hostname nowhere: Name or service not known", "ssh HOST"},
            {"Primary job  terminated normally\n-----\nmpirun noticed that process rank 1 with "
             "PID 7 on node vm exited on\nsignal 9 (Killed).\n-----\n",
             "mpirun noticed that process rank 1 with PID 7 on node vm exited on signal 9 "
             "(Killed).",
             NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct crew_said said = {0};
        for (const char *c = samples[i].output; *c; c++)
            crew_said_note(&said, c, 1);
        assert_string_equal(crew_said_text(&said), samples[i].text);
        assert_int_equal(said.remedy != NULL, samples[i].remedy != NULL);
        if (said.remedy)
            assert_non_null(strstr(said.remedy, samples[i].remedy));
    }
}

/* As some parents leave it; the kernel would then throw away how a child ended. */
static void test_ignored_ends(void **state)
{
    struct crew_child child;
    char how[CREW_HOW_BYTES] = "";
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    start_shell(&child, "exit 3");
    assert_int_equal(wait_for(&child, how, sizeof(how)), DPB_ERR_RANK_FAILED);
    assert_string_equal(how, "mpirun exited with code 3");
    crew_child_stop(&child);
}

/* The shell waits for a sleep that is in its group, and both are gone. */
static void test_stop_ends_the_group(void **state)
{
    struct crew_child child;
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come here: not every init reaps them */
    start_shell(&child, "sleep 600 & wait");
    const pid_t group = child.pid;
    crew_child_stop(&child);
    while (kill(-group, 0) == 0) {
        (void)waitpid(-group, NULL, WNOHANG);
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    }
    assert_int_equal(errno, ESRCH);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void test_environment(void **state)
{
    (void)state;
    setenv("DPB_TEST_A", "1", 1);
    setenv("DPB_TEST_AB", "2", 1);
    setenv("DPB_TEST_C", "3", 1);
    char **made = crew_environment((const char *const[]){"DPB_TEST_A", NULL},
                                   (const char *const[]){"DPB_TEST_C=4", "DPB_TEST_D=5", NULL});
    bool ab = false, c4 = false, d5 = false;
    for (char **e = made; *e; e++) {
        assert_int_not_equal(strncmp(*e, "DPB_TEST_A=", 11), 0);
        assert_string_not_equal(*e, "DPB_TEST_C=3");
        ab |= strcmp(*e, "DPB_TEST_AB=2") == 0;
        c4 |= strcmp(*e, "DPB_TEST_C=4") == 0;
        d5 |= strcmp(*e, "DPB_TEST_D=5") == 0;
    }
    assert_true(ab && c4 && d5);
    crew_strings_free(made);
}

/* ---- command lines ---- */

static char folder[] = "/tmp/dpb-crew-XXXXXX";

/* A program that says it is of some version. */
static void make_program(const char *name, const char *version)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\necho '%s'\n", version);
    fclose(file);
    assert_int_equal(chmod(path, 0755), 0);
}

static dpb_crew *open_crew(int launcher, const char *hosts, const char *arguments)
{
    struct dpb_crew_options options = {.launcher = launcher};
    dpb_crew *crew = NULL;
    dpb_status verdict;
    snprintf(options.hosts, sizeof(options.hosts), "%s", hosts);
    snprintf(options.launcher_args, sizeof(options.launcher_args), "%s", arguments);
    assert_int_equal(dpb_crew_open(&options, "", NULL, &crew, &verdict), DPB_OK);
    return crew;
}

/* The words between the program's path and this binary's. */
static void assert_command(dpb_crew *crew, int ranks, const char *expected)
{
    struct crew_words argv = {0};
    struct dpb_world world;
    struct dpb_str text = {0};
    assert_int_equal(dpb_crew_map(crew, ranks, 0, &world), DPB_OK);
    assert_int_equal(crew->ops->command(crew, &world, ranks, &argv), DPB_OK);
    assert_true(argv.count > 2);
    assert_string_equal(argv.items[argv.count - 1], DPB_WORKER_VERB);
    assert_non_null(strstr(argv.items[argv.count - 2], "test_crew"));
    for (size_t i = 1; i < argv.count - 2; i++)
        dpb_str_appendf(&text, "%s%s", i > 1 ? " " : "", argv.items[i]);
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
    dpb_world_release(&world);
    crew_words_release(&argv);
}

static void test_commands(void **state)
{
    static const struct {
        int launcher;
        const char *version, *hosts, *arguments;
        int ranks;
        const char *command;
    } samples[] = {
            {DPB_LAUNCHER_MPIRUN, "mpirun (Open MPI) 4.1.4", "a:2,b:2", "", 3,
             "-np 3 --host a:2,b:1 --map-by slot --bind-to none -x DPBENCH_LAUNCHER -x "
             "DPBENCH_TOKEN"},
            {DPB_LAUNCHER_MPIRUN, "mpirun (Open MPI) 5.0.3", "", "--oversubscribe", 4,
             "-np 4 --map-by slot --bind-to none -x DPBENCH_LAUNCHER -x DPBENCH_TOKEN "
             "--oversubscribe"},
            {DPB_LAUNCHER_MPIRUN, "mpirun (Open MPI) 4.1.4", "a:2", "--map-by node --bind-to core",
             1,
             "-np 1 --host a:1 -x DPBENCH_LAUNCHER -x DPBENCH_TOKEN --map-by node --bind-to "
             "core"},
            {DPB_LAUNCHER_MPIRUN, "HYDRA build details:", "a:2,b:2", "-iface eth0", 4,
             "-np 4 -hosts a:2,b:2 -genvlist DPBENCH_LAUNCHER,DPBENCH_TOKEN -iface eth0"},
            {DPB_LAUNCHER_SRUN, "slurm 22.05.8", "a:2,b:2", "--mpi=pmix", 4,
             "--ntasks=4 --nodes=2 --nodelist=a,b --ntasks-per-node=2 --distribution=block "
             "--export=ALL --kill-on-bad-exit=1 --overlap --mpi=pmix"},
            {DPB_LAUNCHER_SRUN, "slurm 19.05.1", "", "", 2,
             "--ntasks=2 --distribution=block --export=ALL --kill-on-bad-exit=1"},
            {DPB_LAUNCHER_SRUN, "slurm 20.11.9", "a:1,b:2", "", 3,
             "--ntasks=3 --nodes=2 --nodelist=a,b --distribution=block --export=ALL "
             "--kill-on-bad-exit=1 --overlap"},
    };
    (void)state;
    setenv("SLURM_JOB_ID", "7", 1);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        make_program(samples[i].launcher == DPB_LAUNCHER_SRUN ? "srun" : "mpirun",
                     samples[i].version);
        dpb_crew *crew = open_crew(samples[i].launcher, samples[i].hosts, samples[i].arguments);
        assert_command(crew, samples[i].ranks, samples[i].command);
        dpb_crew_close(crew, DPB_OK);
    }
    unsetenv("SLURM_JOB_ID");
}

/* Its ranks were let go: it is ending. */
static void test_a_launcher_that_ends_is_not_told_to(void **state)
{
    char script[256], ready[64], told[64];
    struct dpb_crew crew = {.ops = &crew_mpirun, .child.output_fd = -1};
    (void)state;
    snprintf(ready, sizeof(ready), "%s/ready", folder);
    snprintf(told, sizeof(told), "%s/told", folder);
    snprintf(script, sizeof(script), "trap 'echo >%s' TERM; echo >%s; sleep 0.2", told, ready);
    start_shell(&crew.child, script);
    while (access(ready, F_OK) != 0)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    dpb_crew_stop(&crew, true);
    assert_int_equal(crew.child.pid, 0);
    assert_int_equal(unlink(ready), 0);
    assert_int_equal(unlink(told), -1);
}

static void test_another_mpirun(void **state)
{
    struct dpb_crew_options options = {.launcher = DPB_LAUNCHER_MPIRUN};
    dpb_crew *crew = NULL;
    dpb_status verdict;
    (void)state;
    make_program("mpirun", "Some MPI 1.0");
    assert_int_equal(dpb_crew_open(&options, "", NULL, &crew, &verdict), DPB_ERR_UNAVAILABLE);
    assert_logged("is neither Open MPI's nor MPICH's: \"Some MPI 1.0\"");
    assert_null(crew);
}

static void test_srun_outside_a_job(void **state)
{
    struct dpb_crew_options options = {.launcher = DPB_LAUNCHER_SRUN};
    dpb_crew *crew = NULL;
    dpb_status verdict;
    (void)state;
    make_program("srun", "slurm 22.05.8");
    assert_int_equal(dpb_crew_open(&options, "", NULL, &crew, &verdict), DPB_ERR_UNAVAILABLE);
    assert_logged("this process is in no Slurm job");
}

/* Where the driver must be reached from, and what it is told of. */
static void test_hints_and_json(void **state)
{
    const char *bind_to, *peer;
    struct dpb_str text = {0};
    (void)state;
    make_program("mpirun", "mpirun (Open MPI) 4.1.4");
    dpb_crew *crew = open_crew(DPB_LAUNCHER_MPIRUN, "localhost:2,other:2", "");
    dpb_crew_listen_hints(crew, &bind_to, &peer);
    assert_null(bind_to);
    assert_string_equal(peer, "other");
    assert_int_equal(dpb_crew_ranks_max(crew), 4);
    assert_false(dpb_crew_is_started(crew));
    dpb_json *json = dpb_crew_json(crew);
    assert_int_equal(dpb_json_write(json, false, &text), DPB_OK);
    assert_string_equal(text.text,
                        "{\"launcher\":\"mpirun\",\"version\":\"mpirun (Open MPI) 4.1.4\","
                        "\"command\":null,\"hosts\":[{\"name\":\"localhost\",\"slots\":2},"
                        "{\"name\":\"other\",\"slots\":2}],"
                        "\"options\":\" --launcher mpirun --hosts localhost:2,other:2\"}");
    dpb_str_release(&text);
    dpb_json_free(json);
    dpb_crew_close(crew, DPB_OK);
    crew = open_crew(DPB_LAUNCHER_MPIRUN, "localhost:2", "");
    dpb_crew_listen_hints(crew, &bind_to, &peer);
    assert_null(peer);
    dpb_crew_close(crew, DPB_OK);
}

static void test_comms(void **state)
{
    (void)state;
    make_program("mpirun", "mpirun (Open MPI) 4.1.4");
    dpb_crew *crew = open_crew(DPB_LAUNCHER_MPIRUN, "a:2,b:2", "");
    assert_int_equal(dpb_crew_check_comm(crew, "shm", true, 1, 1, 1), DPB_ERR_USAGE);
    assert_logged(
            "--comm shm moves bytes through memory that ranks inherit, and --launcher mpirun");
    assert_int_equal(dpb_crew_check_comm(crew, "nccl", false, 9, 1, 4), DPB_OK);
    assert_int_equal(dpb_crew_check_comm(crew, "mpi", false, 9, 1, 4), DPB_OK);
    assert_int_equal(dpb_crew_check_comm(NULL, "shm", true, 9, 1, 4), DPB_OK);
    dpb_crew_close(crew, DPB_OK);
}

static void test_options_that_cannot_take_effect(void **state)
{
    static const struct {
        int launcher;
        size_t offset;
        const char *why;
    } samples[] = {
            {DPB_LAUNCHER_LOCAL, offsetof(struct dpb_crew_options, hosts),
             "--hosts a:1 cannot take effect with --launcher local"},
            {DPB_LAUNCHER_LOCAL, offsetof(struct dpb_crew_options, hostfile), "--hostfile a:1"},
            {DPB_LAUNCHER_LOCAL, offsetof(struct dpb_crew_options, interface), "--interface a:1"},
            {DPB_LAUNCHER_LOCAL, offsetof(struct dpb_crew_options, launcher_args),
             "--launcher-args a:1"},
            {DPB_LAUNCHER_LOCAL, offsetof(struct dpb_crew_options, rendezvous),
             "--rendezvous a:1 cannot take effect with --launcher local"},
            {DPB_LAUNCHER_MPIRUN, offsetof(struct dpb_crew_options, rendezvous),
             "--rendezvous a:1 cannot take effect with --launcher mpirun"},
            {DPB_LAUNCHER_NONE, offsetof(struct dpb_crew_options, hosts),
             "--hosts a:1 cannot take effect with --launcher none"},
            {DPB_LAUNCHER_TORCHRUN, offsetof(struct dpb_crew_options, launcher_args),
             "--launcher-args a:1 cannot take effect with --launcher torchrun-env"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct dpb_crew_options options = {.launcher = samples[i].launcher};
        dpb_crew *crew = NULL;
        dpb_status verdict;
        strcpy((char *)&options + samples[i].offset, "a:1");
        assert_int_equal(dpb_crew_open(&options, "", NULL, &crew, &verdict), DPB_ERR_USAGE);
        assert_logged(samples[i].why);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
            TEST(test_words),
            TEST(test_open_quote),
            TEST(test_nodelists),
            TEST(test_names_of_this_host),
            TEST(test_ends_of_a_process),
            TEST(test_what_a_launcher_says),
            TEST(test_ignored_ends),
            TEST(test_stop_ends_the_group),
            TEST(test_environment),
            TEST(test_commands),
            TEST(test_a_launcher_that_ends_is_not_told_to),
            TEST(test_another_mpirun),
            TEST(test_srun_outside_a_job),
            TEST(test_hints_and_json),
            TEST(test_comms),
            TEST(test_options_that_cannot_take_effect),
    };
    const char *path = getenv("PATH");
    char *with_ours = NULL;
    if (!mkdtemp(folder) || asprintf(&with_ours, "%s:%s", folder, path ? path : "/bin") < 0)
        return 1;
    setenv("PATH", with_ours, 1);
    free(with_ours);
    unsetenv("SLURM_JOB_ID");
    const int failed = DPB_RUN_TESTS(tests);
    char name[256];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s/%s", folder, i ? "srun" : "mpirun");
        unlink(name);
    }
    rmdir(folder);
    return failed;
}
