#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_test.h"
#include "log_capture.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/dpb_test_str_XXXXXX");
    capture_start();
    return mkdtemp(folder) ? 0 : -1;
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *inner;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        inner = dpb_path_join(path, entry->d_name);
        assert_non_null(inner);
        if (unlink(inner) != 0)
            remove_tree(inner);
        free(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static int teardown(void **state)
{
    (void)state;
    remove_tree(folder);
    capture_stop();
    return 0;
}

static char *in_folder(const char *name)
{
    char *path = dpb_path_join(folder, name);

    assert_non_null(path);
    return path;
}

static int entry_count(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void assert_content(const char *path, const char *expected)
{
    struct dpb_str content = {0};

    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    assert_string_equal(content.text, expected);
    dpb_str_release(&content);
}

static void test_append(void **state)
{
    struct dpb_str str = {0};
    int i;

    (void)state;
    dpb_str_append(&str, "");
    assert_string_equal(str.text, "");
    for (i = 0; i < 1000; i++)
        dpb_str_appendf(&str, "%d,", i % 10);
    assert_int_equal(str.length, 2000);
    assert_memory_equal(str.text, "0,1,2,", 6);
    dpb_str_append_bytes(&str, "a\0b", 3);
    assert_int_equal(str.length, 2003);
    assert_memory_equal(str.text + 2000, "a\0b", 4);
    dpb_str_release(&str);
    assert_null(str.text);

    /* a piece longer than the room that is left */
    dpb_str_appendf(&str, "%0500d", 7);
    assert_int_equal(str.length, 500);
    assert_int_equal(str.text[499], '7');
    assert_false(str.failed);
    /* failure sticks */
    dpb_str_append_bytes(&str, "", SIZE_MAX / 2);
    assert_true(str.failed);
    dpb_str_append(&str, "x");
    dpb_str_appendf(&str, "%d", 1);
    assert_int_equal(str.length, 500);
    dpb_str_release(&str);
    assert_false(str.failed);
}

static void test_file_round_trip(void **state)
{
    char *path = in_folder("a.txt");
    struct dpb_str content = {0};
    struct stat info;
    mode_t mask = umask(027);

    (void)state;
    assert_int_equal(dpb_file_write_atomic(path, "hello\0x", 7), DPB_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    umask(mask);
    dpb_str_append(&content, "> ");
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    assert_int_equal(content.length, 9);
    assert_memory_equal(content.text, "> hello\0x", 10);
    dpb_str_release(&content);

    assert_int_equal(dpb_file_write_atomic(path, "new", 3), DPB_OK);
    assert_content(path, "new");
    assert_int_equal(dpb_file_write_atomic(path, "", 0), DPB_OK);
    assert_content(path, "");
    assert_int_equal(entry_count(folder), 1); /* no temporary file stays */
    assert_string_equal(captured.text, "");
    free(path);
}

static void test_file_errors(void **state)
{
    char *file = in_folder("file"), *below, *absent = in_folder("no/such/file");
    struct dpb_str content = {0};

    (void)state;
    assert_int_equal(dpb_file_read(absent, &content), DPB_ERR_NOT_FOUND);
    assert_logged(absent);
    assert_logged("No such file");
    assert_int_equal(dpb_file_read(folder, &content), DPB_ERR_IO);
    assert_null(content.text);

    capture_start();
    assert_int_equal(dpb_file_write_atomic(absent, "x", 1), DPB_ERR_IO);
    assert_logged("cannot write");
    assert_logged(absent);
    assert_logged("hint: ");

    /* a folder stands where the file should go */
    assert_int_equal(dpb_file_write_atomic(folder, "x", 1), DPB_ERR_IO);
    assert_logged("Is a directory");

    /* a file stands where the folder should be */
    assert_int_equal(dpb_file_write_atomic(file, "old", 3), DPB_OK);
    below = dpb_path_join(file, "x");
    assert_int_equal(dpb_file_write_atomic(below, "x", 1), DPB_ERR_IO);
    assert_logged("Not a directory");
    assert_content(file, "old");
    assert_int_equal(entry_count(folder), 1);
    free(below);
    free(absent);
    free(file);
}

/* What could not be written is told beforehand; nothing is left behind, nothing is changed. */
static void test_check_before_writing(void **state)
{
    char *file = in_folder("file"), *absent = in_folder("nowhere/file"),
         *below = in_folder("file/x"), *deep = in_folder("a/b/c");

    (void)state;
    assert_int_equal(dpb_file_check(file), DPB_OK);
    assert_int_equal(dpb_folder_check(folder), DPB_OK);
    assert_int_equal(dpb_folder_check(deep), DPB_OK);
    assert_int_equal(dpb_folder_check("."), DPB_OK);
    assert_int_equal(entry_count(folder), 0);
    assert_int_equal(dpb_file_write_atomic(file, "old", 3), DPB_OK);
    assert_int_equal(dpb_file_check(file), DPB_OK);
    assert_content(file, "old");

    capture_start();
    assert_int_equal(dpb_file_check("-"), DPB_ERR_USAGE);
    assert_int_equal(dpb_folder_check("-"), DPB_ERR_USAGE);
    assert_int_equal(dpb_mkdir_p("-"), DPB_ERR_USAGE);
    assert_logged("/dev/stdout is the standard output");
    assert_int_equal(dpb_file_check(absent), DPB_ERR_IO);
    assert_logged(absent);
    assert_int_equal(dpb_file_check(below), DPB_ERR_IO);
    assert_logged("Not a directory");
    assert_int_equal(dpb_file_check(folder), DPB_ERR_IO);
    assert_logged("Is a directory");
    capture_start();
    assert_int_equal(dpb_folder_check(below), DPB_ERR_IO);
    assert_logged("Not a directory");
    assert_int_equal(dpb_folder_check(file), DPB_ERR_IO);
    assert_int_equal(dpb_folder_check(""), DPB_ERR_IO);
    assert_int_equal(dpb_folder_check("/proc/nowhere/x"), DPB_ERR_IO); /* root cannot, either */
    assert_logged("cannot create the folder");
    assert_int_equal(dpb_file_check("/dev/null"), DPB_OK);
    assert_int_equal(entry_count(folder), 1);
    free(deep);
    free(below);
    free(absent);
    free(file);
}

/* Devices are written to, and never replaced. */
static void test_write_to_devices(void **state)
{
    struct stat before, after;

    (void)state;
    if (stat("/dev/full", &before) != 0)
        dpb_test_skip("there is no /dev/full");
    assert_int_equal(dpb_file_write_atomic("/dev/full", "x", 1), DPB_ERR_IO);
    assert_logged("No space left");
    assert_logged("free some space");
    assert_int_equal(stat("/dev/full", &after), 0);
    assert_true(S_ISCHR(after.st_mode) && after.st_ino == before.st_ino);
    assert_int_equal(dpb_file_write_atomic("/dev/null", "x", 1), DPB_OK);
    assert_int_equal(stat("/dev/null", &after), 0);
    assert_true(S_ISCHR(after.st_mode));
}

/* Writing fails half-way (file-size limit): the old file stays whole and nothing else is left. */
static void test_failed_write_keeps_the_old_file(void **state)
{
    char *path = in_folder("limited"), *link = in_folder("link");
    struct stat info;
    pid_t child;
    int exit_status;

    (void)state;
    assert_int_equal(dpb_file_write_atomic(path, "old", 3), DPB_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {100, 100};
        static char big[1000];

        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(2);
        _exit(dpb_file_write_atomic(path, big, sizeof(big)) == DPB_ERR_IO ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_true(WIFEXITED(exit_status));
    assert_int_equal(WEXITSTATUS(exit_status), 0);
    assert_content(path, "old");
    assert_int_equal(entry_count(folder), 1);

    /* a symbolic link stays one */
    assert_int_equal(symlink("limited", link), 0);
    assert_int_equal(dpb_file_write_atomic(link, "new", 3), DPB_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_content(path, "new");
    free(link);
    free(path);
}

static void test_mkdir_p(void **state)
{
    char *deep = in_folder("a//b/c/"), *file = in_folder("a/file"), *below = in_folder("a/file/x");
    struct stat info;

    (void)state;
    assert_int_equal(dpb_mkdir_p(deep), DPB_OK);
    assert_int_equal(stat(deep, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(dpb_mkdir_p(deep), DPB_OK);
    assert_int_equal(dpb_mkdir_p("/"), DPB_OK);
    assert_int_equal(dpb_mkdir_p("."), DPB_OK);
    assert_int_equal(dpb_file_write_atomic(file, "x", 1), DPB_OK);
    assert_int_equal(dpb_mkdir_p(file), DPB_ERR_IO);
    assert_int_equal(dpb_mkdir_p(below), DPB_ERR_IO);
    assert_logged("Not a directory");
    assert_int_equal(dpb_mkdir_p(""), DPB_ERR_IO);
    free(below);
    free(file);
    free(deep);
}

static void test_path_join(void **state)
{
    static const char *const cases[][3] = {
            {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *joined = dpb_path_join(cases[i][0], cases[i][1]);

        assert_string_equal(joined, cases[i][2]);
        free(joined);
    }
}

static void test_suggest(void **state)
{
    static const char *const names[] = {"bucket", "overlap", "ranks", "ddp", "algorithm"};
    static const struct {
        const char *word, *expected;
    } cases[] = {
            {"buckt", "bucket"},    {"bukcet", "bucket"},
            {"bucket", "bucket"},   {"Ranks", "ranks"},
            {"rank", "ranks"},      {"dpp", "ddp"},
            {"overlpa", "overlap"}, {"algoritmn", "algorithm"},
            {"zzzzzz", NULL},       {"", NULL},
            {"xy", NULL},           {"bucketsizes", "bucket"},
            {"algo", "algorithm"},  {"ddp-overlapped", "ddp"},
            {"al", NULL},           {"undersized-ranks", NULL},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *near = dpb_suggest(cases[i].word, names, sizeof(names) / sizeof(names[0]));

        if (cases[i].expected)
            assert_string_equal(near ? near : "(none)", cases[i].expected);
        else if (near)
            fail_msg("\"%s\" suggested for \"%s\"", near, cases[i].word);
    }
    /* of several that begin with it, the shortest */
    static const char *const long_names[] = {"batch-per-rank", "batch-size", "batches"};

    assert_string_equal(dpb_suggest("batch-", long_names + 0, 2), "batch-size");
    assert_null(dpb_suggest("bucket", NULL, 0));
}

static void test_shell_quote(void **state)
{
    static const char *const cases[][2] = {
            {"abc", "abc"},
            {"25Gbps,5us", "25Gbps,5us"},
            {"", "''"},
            {"a b", "'a b'"},
            {"it's", "'it'\\''s'"},
            {"$HOME", "'$HOME'"},
            {"a;b", "'a;b'"},
            {"~", "'~'"},
            {"'", "''\\'''"},
            {"*.yaml", "'*.yaml'"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_str out = {0};

        dpb_shell_quote(cases[i][0], &out);
        assert_string_equal(out.text, cases[i][1]);
        dpb_str_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_append, setup, teardown),
            cmocka_unit_test_setup_teardown(test_file_round_trip, setup, teardown),
            cmocka_unit_test_setup_teardown(test_file_errors, setup, teardown),
            cmocka_unit_test_setup_teardown(test_write_to_devices, setup, teardown),
            cmocka_unit_test_setup_teardown(test_failed_write_keeps_the_old_file, setup, teardown),
            cmocka_unit_test_setup_teardown(test_check_before_writing, setup, teardown),
            cmocka_unit_test_setup_teardown(test_mkdir_p, setup, teardown),
            cmocka_unit_test(test_path_join),
            cmocka_unit_test(test_suggest),
            cmocka_unit_test(test_shell_quote),
    };

    return DPB_RUN_TESTS(tests);
}
