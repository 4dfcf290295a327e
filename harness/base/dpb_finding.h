/* dpb_finding.h: what an inspection of this machine finds, one line at a time.
 *
 * Who inspects calls found(); who asked prints it, keeps it as JSON, or is a test. */
#ifndef DPB_FINDING_H
#define DPB_FINDING_H

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_finding_level {
    DPB_FINDING_OK,
    DPB_FINDING_WARN, /* works, but measures less well or will fail at more */
    DPB_FINDING_FAIL  /* what it is about cannot be used */
};

/* `what` is the subject ("/dev/shm"), `detail` what was found ("64 MiB"), `remedy` what to do about
 * it, NULL or "" with DPB_FINDING_OK. All are one line and valid during the call only. */
typedef void (*dpb_found)(void *ctx, enum dpb_finding_level level, const char *what,
                          const char *detail, const char *remedy);

#ifdef __cplusplus
}
#endif
#endif
