/* dpb_status.h: status codes, the macros that propagate them, and the exit code each maps to.
 *
 * 0 is success, negative is failure, positive is not an error (in progress, end of input).
 * Outputs of a function are set only when it returns DPB_OK. The function that first knows of a
 * failure logs it (dpb_log.h); callers only propagate. */
#ifndef DPB_STATUS_H
#define DPB_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* name, number, text, exit code of the program when this ends it */
#define DPB_STATUS_MAP(X)                                                                          \
    X(DPB_PENDING, 1, "in progress", 0)                                                            \
    X(DPB_END, 2, "end of input", 0)                                                               \
    X(DPB_OK, 0, "ok", 0)                                                                          \
    X(DPB_ERR_USAGE, -1, "usage error", 2)                                                         \
    X(DPB_ERR_NOT_FOUND, -2, "not found", 3)                                                       \
    X(DPB_ERR_IO, -3, "input/output error", 3)                                                     \
    X(DPB_ERR_NO_MEMORY, -4, "out of memory", 3)                                                   \
    X(DPB_ERR_UNAVAILABLE, -5, "not available here", 3)                                            \
    X(DPB_ERR_UNSUPPORTED, -6, "not supported", 3)                                                 \
    X(DPB_ERR_TIMEOUT, -7, "timed out", 4)                                                         \
    X(DPB_ERR_RANK_FAILED, -8, "a rank failed", 4)                                                 \
    X(DPB_ERR_MISMATCH, -9, "ranks disagree", 3)                                                   \
    X(DPB_ERR_CORRUPT, -10, "damaged data", 5)                                                     \
    X(DPB_ERR_NO_DATA, -11, "not enough or not comparable data", 5)                                \
    X(DPB_ERR_CHECK, -12, "a check failed", 1)                                                     \
    X(DPB_ERR_INTERRUPTED, -13, "interrupted", 130)                                                \
    X(DPB_ERR_VENDOR, -14, "a library call failed", 3)                                             \
    X(DPB_ERR_INTERNAL, -15, "internal error", 3)

typedef enum dpb_status {
#define DPB_STATUS_ENUM(name, number, text, exit_code) name = number,
    DPB_STATUS_MAP(DPB_STATUS_ENUM)
#undef DPB_STATUS_ENUM
} dpb_status;

/* The status as one short lower-case English phrase; never NULL, static storage. */
const char *dpb_status_text(dpb_status st);

/* The identifier, "DPB_ERR_IO"; "DPB_STATUS_UNKNOWN" for a number that is no status. */
const char *dpb_status_name(dpb_status st);

/* The exit code of the program when `st` ends it: 0 for DPB_OK and positive values, else 1 to 5 or
 * 130 (docs/exit-codes in the README). Never 0 for a failure. */
int dpb_status_exit_code(dpb_status st);

/* Return the failure of `call` to the caller. */
#define DPB_TRY(call)                                                                              \
    do {                                                                                           \
        dpb_status dpb_try_st_ = (call);                                                           \
        if (dpb_try_st_ < 0)                                                                       \
            return dpb_try_st_;                                                                    \
    } while (0)

/* Store the result of `call` in `st` and jump to `label` on failure. */
#define DPB_TRY_GOTO(st, call, label)                                                              \
    do {                                                                                           \
        (st) = (call);                                                                             \
        if ((st) < 0)                                                                              \
            goto label;                                                                            \
    } while (0)

/* In clean-up code: carry on after a failing `call`, keep the first error in `st`. */
#define DPB_KEEP(st, call)                                                                         \
    do {                                                                                           \
        dpb_status dpb_keep_st_ = (call);                                                          \
        if ((st) >= 0 && dpb_keep_st_ < 0)                                                         \
            (st) = dpb_keep_st_;                                                                   \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
