#include "shared_word.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POISON      ((uint64_t)1)
#define NUDGE       ((uint64_t)2)
#define NUDGE_MASK  ((uint64_t)0xfe)
#define COUNT_SHIFT 8

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The half of the value that changes with every step. */
static uint32_t *futex_half(struct dpb_shared_word *word)
{
    uint32_t *halves = (uint32_t *)(void *)&word->value;
    return halves + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static int futex_flags(const struct dpb_shared_word *word)
{
    return word->local ? FUTEX_PRIVATE_FLAG : 0;
}

static void wake_sleepers(struct dpb_shared_word *word)
{
    /* Ordered after the change of the value (both sequentially consistent): either this sees the
     * sleeper, or the sleeper's futex call sees the change and returns at once. */
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, futex_half(word), FUTEX_WAKE | futex_flags(word), INT_MAX, NULL, NULL,
                0);
}

void dpb_shared_word_advance(struct dpb_shared_word *word, uint64_t by)
{
    atomic_fetch_add(&word->value, by << COUNT_SHIFT);
    wake_sleepers(word);
}

void dpb_shared_word_post(struct dpb_shared_word *word)
{
    dpb_shared_word_advance(word, 1);
}

void dpb_shared_word_poison(struct dpb_shared_word *word)
{
    atomic_fetch_or(&word->value, POISON);
    wake_sleepers(word);
}

void dpb_shared_word_nudge(struct dpb_shared_word *word)
{
    atomic_fetch_add(&word->value, NUDGE);
    wake_sleepers(word);
}

uint64_t dpb_shared_word_count(struct dpb_shared_word *word)
{
    return atomic_load(&word->value) >> COUNT_SHIFT;
}

unsigned dpb_shared_word_nudges(struct dpb_shared_word *word)
{
    return (unsigned)(atomic_load(&word->value) & NUDGE_MASK);
}

bool dpb_shared_word_is_poisoned(struct dpb_shared_word *word)
{
    return atomic_load(&word->value) & POISON;
}

enum dpb_shared_wake dpb_shared_word_wait(struct dpb_shared_word *word, uint64_t target,
                                          unsigned nudges, int64_t deadline_ns, int spins)
{
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    bool late = false;
    for (;;) {
        uint64_t value = atomic_load(&word->value);
        if (value >> COUNT_SHIFT >= target)
            return DPB_SHARED_REACHED;
        if (value & POISON)
            return DPB_SHARED_POISONED;
        if ((value & NUDGE_MASK) != nudges)
            return DPB_SHARED_NUDGED;
        if (late)
            return DPB_SHARED_LATE;
        if (spins-- > 0) {
            pause_cpu();
            continue;
        }
        atomic_fetch_add(&word->sleepers, 1);
        /* BITSET, because its time-out is absolute and CLOCK_MONOTONIC. */
        long rc = syscall(SYS_futex, futex_half(word), FUTEX_WAIT_BITSET | futex_flags(word),
                          (uint32_t)value, deadline_ns == DPB_SHARED_NEVER ? NULL : &deadline, NULL,
                          FUTEX_BITSET_MATCH_ANY);
        late = rc < 0 && errno == ETIMEDOUT;
        atomic_fetch_sub(&word->sleepers, 1);
        spins = 0;
    }
}

bool dpb_shared_word_spin(struct dpb_shared_word *word, uint64_t target, int spins, int yields)
{
    while (true) {
        uint64_t value = atomic_load_explicit(&word->value, memory_order_acquire);
        if (value >> COUNT_SHIFT >= target)
            return true;
        if (value & POISON)
            return false;
        if (spins-- > 0)
            pause_cpu();
        else if (yields-- > 0)
            sched_yield();
        else
            return false;
    }
}

bool dpb_shared_spin(const _Atomic uint64_t *number, uint64_t target, int spins)
{
    while (atomic_load_explicit(number, memory_order_acquire) < target) {
        if (spins-- <= 0)
            return false;
        pause_cpu();
    }
    return true;
}

void dpb_shared_barrier_arrive(struct dpb_shared_barrier *barrier, uint64_t meeting, int ranks)
{
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == meeting * (uint64_t)ranks)
        dpb_shared_word_post(&barrier->epoch);
}
