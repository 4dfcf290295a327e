#include "dpb_test.h"
#include "forked.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKED_RANKS_MAX 16

void *forked_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

void forked_memory_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

int forked_run(int ranks, forked_body body, void *shared)
{
    pid_t child[FORKED_RANKS_MAX];
    int bad = 0;

    assert_true(ranks <= FORKED_RANKS_MAX);
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) {
            alarm(FORKED_SECONDS_MAX);
            body(r, shared);
            exit(0); /* not _exit: the leak checker runs */
        }
    }
    for (int r = 0; r < ranks; r++) {
        int status;

        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            print_error("rank %d ended with wait status %#x\n", r, (unsigned)status);
            bad++;
        }
    }
    return bad;
}
