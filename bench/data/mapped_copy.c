#include "mapped_copy.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* Where this thread goes on after a fault; NULL: it is not copying. */
static _Thread_local sigjmp_buf *volatile resume;
static _Thread_local const void *volatile fault_address;

static struct sigaction before;
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    sigjmp_buf *to = resume;

    if (to) {
        resume = NULL;
        fault_address = info->si_addr;
        siglongjmp(*to, 1);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        /* The instruction is run again, and ends the process as it would have. */
        signal(SIGBUS, SIG_DFL);
    }
}

void dpb_mapped_copy_prepare(void)
{
    /* Not blocked while it runs, since it does not return. */
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER}, now;

    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&installing);
    sigaction(SIGBUS, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus) {
        before = now;
        sigaction(SIGBUS, &action, NULL);
    }
    pthread_mutex_unlock(&installing);
}

bool dpb_mapped_copy(void *to, const void *from, size_t bytes, const void **fault)
{
    sigjmp_buf here;

    if (sigsetjmp(here, 0) != 0) {
        *fault = fault_address;
        return false;
    }
    resume = &here;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
    resume = NULL;
    return true;
}
