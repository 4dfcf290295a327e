/* crew_for_tests.h: a crew of this very binary's processes, in place of mpirun. */
#ifndef CREW_FOR_TESTS_H
#define CREW_FOR_TESTS_H

#include <stdbool.h>

struct dpb_crew;

enum crew_fault {
    CREW_WELL,
    CREW_ONE_MISSING, /* the last rank is never started */
    CREW_ONE_TWICE,   /* the last rank says that it is the one before */
    CREW_SINGLETONS,  /* every rank was told that it is alone */
    CREW_GHOST,       /* rank 0 comes, leaves without a word, and comes again */
    CREW_STRANGER,    /* somebody with another token comes first */
    CREW_OTHER_BUILD, /* all ranks run another binary than the launcher */
    CREW_OTHER_CLOCK, /* rank 1 is in a time name space 1000 s ahead */
    CREW_CUT,         /* rank 1 is connected through another process, which ends after the job */
    CREW_HUSHED       /* the same, but it goes silent */
};

struct dpb_crew *crew_for_tests_new(enum crew_fault fault);
void crew_for_tests_free(struct dpb_crew *crew);

/* How many of its processes had not ended by themselves when it was stopped. */
int crew_for_tests_killed(const struct dpb_crew *crew);

/* The variable by which ranks are told where they leave their process ids, a file each. */
#define CREW_PIDS_VARIABLE "DPB_TEST_PIDS"

/* Can this user make a time name space? */
bool crew_can_shift_clocks(void);

#endif
