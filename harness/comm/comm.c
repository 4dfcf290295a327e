/* comm.c: what all communication backends share: texts, factors, shards, the check of a table. */
#include "dpb_comm.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "dpb_log.h"

const char *dpb_coll_text(enum dpb_coll_kind kind)
{
    static const char *const text_of[] = {
#define DPB_COLL_TEXT(name, text, numerator) text,
            DPB_COLL_MAP(DPB_COLL_TEXT)
#undef DPB_COLL_TEXT
    };
    if ((unsigned)kind >= DPB_COLL_COUNT)
        return "unknown collective";
    return text_of[kind];
}

bool dpb_coll_reduces(enum dpb_coll_kind kind)
{
    return kind == DPB_COLL_ALL_REDUCE || kind == DPB_COLL_REDUCE_SCATTER ||
           kind == DPB_COLL_REDUCE;
}

bool dpb_coll_has_root(enum dpb_coll_kind kind)
{
    return kind == DPB_COLL_BROADCAST || kind == DPB_COLL_REDUCE;
}

double dpb_coll_busbw_factor(enum dpb_coll_kind kind, int ranks)
{
    int numerator = 0;
    switch (kind) {
#define DPB_COLL_NUMERATOR(name, text, value)                                                      \
    case name:                                                                                     \
        numerator = (value);                                                                       \
        break;
        DPB_COLL_MAP(DPB_COLL_NUMERATOR)
#undef DPB_COLL_NUMERATOR
    case DPB_COLL_COUNT:
        break;
    }
    if (ranks < 1 || numerator == 0)
        return NAN;
    return (double)numerator / ranks;
}

int64_t dpb_coll_shard(int64_t count, int ranks, int rank, int64_t *first)
{
    int64_t each = count / ranks + (count % ranks != 0);
    int64_t begin = count;
    /* Compared by division: rank * each may not fit in 64 bits when the shard is empty. */
    if (each > 0 && rank <= count / each)
        begin = rank * each;
    if (first)
        *first = begin;
    return count - begin < each ? count - begin : each;
}

dpb_status dpb_comm_ops_check(const struct dpb_comm_ops *ops)
{
    if (!ops) {
        dpb_error("a comm table is missing (NULL)");
        return DPB_ERR_INTERNAL;
    }
    const char *name = ops->name && ops->name[0] ? ops->name : "(unnamed)";
    if (ops->version != DPB_COMM_OPS_VERSION) {
        dpb_error("comm \"%s\": its table has version %d, this program needs %d", name,
                  ops->version, DPB_COMM_OPS_VERSION);
        return DPB_ERR_INTERNAL;
    }
    const struct {
        const char *member;
        bool present;
    } required[] = {
            {"name", ops->name && ops->name[0]},
            {"summary", ops->summary && ops->summary[0]},
            {"probe", ops->probe != NULL},
            {"open", ops->open != NULL},
            {"close", ops->close != NULL},
            {"describe", ops->describe != NULL},
            {"buffer_alloc", ops->buffer_alloc != NULL},
            {"buffer_free", ops->buffer_free != NULL},
            {"barrier", ops->barrier != NULL},
            {"exchange", ops->exchange != NULL},
            {"start", ops->start != NULL},
            {"test", ops->test != NULL},
            {"wait", ops->wait != NULL},
            {"abort", ops->abort != NULL},
            {"stats", ops->stats != NULL},
            {"wire_ns (a comm that emulates a link needs it)",
             ops->wire_ns != NULL || !(ops->flags & DPB_COMM_EMULATED)},
    };
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        if (!required[i].present) {
            dpb_error("comm \"%s\": its table lacks %s", name, required[i].member);
            return DPB_ERR_INTERNAL;
        }
    }
    const struct dpb_option_table *table = ops->options;
    if (!table)
        return DPB_OK;
    if (!table->kind || strcmp(table->kind, "comm") != 0 || !table->owner ||
        strcmp(table->owner, ops->name) != 0) {
        dpb_error("comm \"%s\": its option table says kind \"%s\", owner \"%s\"", name,
                  table->kind ? table->kind : "", table->owner ? table->owner : "");
        return DPB_ERR_INTERNAL;
    }
    const struct dpb_option_set set = {.tables = &table, .table_count = 1};
    return dpb_option_table_check(table, &set);
}

dpb_status dpb_comm_run(dpb_comm *comm, const struct dpb_coll *coll, struct dpb_coll_times *times)
{
    const struct dpb_comm_ops *ops = dpb_comm_get_base(comm)->ops;
    dpb_request *request;
    if (ops->run)
        return ops->run(comm, coll, times);
    DPB_TRY(ops->start(comm, coll, NULL, &request));
    return ops->wait(comm, request, NULL, times);
}

dpb_status dpb_comm_segment_new(int ranks, int *fd)
{
    if (ranks < 1 || ranks > DPB_COMM_RANKS_MAX) {
        dpb_error("cannot make a shared segment for %d ranks: 1 to %d are possible", ranks,
                  DPB_COMM_RANKS_MAX);
        dpb_log_hint("use fewer ranks on this machine (--ranks)");
        return DPB_ERR_USAGE;
    }
    /* No MFD_CLOEXEC: the ranks inherit it across exec. An anonymous file is not bound by the size
     * of /dev/shm, which is 64 MB in a container by default. */
    int memory = memfd_create("dpbench-ranks", 0);
    if (memory < 0) {
        dpb_error("cannot make the segment that %d ranks share: memfd_create: %s", ranks,
                  strerror(errno));
        dpb_log_hint("raise the limit of open files (ulimit -n) or free memory");
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? DPB_ERR_NO_MEMORY
                                                                     : DPB_ERR_UNAVAILABLE;
    }
    *fd = memory;
    return DPB_OK;
}
