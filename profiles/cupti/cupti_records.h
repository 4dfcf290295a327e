/* cupti_records.h: CUPTI's buffers -> what of them matters here. Private to profiles/cupti.
 *
 * The library walks its own buffers (cuptiActivityGetNextRecord), so the layout of records is its
 * business; what is read of each kind is here. Names are copied: those of CUPTI live only as long
 * as their module. */
#ifndef CUPTI_RECORDS_H
#define CUPTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti_table.h"
#include "dpb_str.h"

enum cupti_work_kind {
    CUPTI_WORK_KERNEL,
    CUPTI_WORK_COPY,
    CUPTI_WORK_FILL
};

/* Something that ran on the device. */
struct cupti_work {
    uint64_t start_ns, end_ns; /* CUPTI's clock; 0: not known */
    int64_t bytes;             /* of a copy or fill */
    uint32_t correlation;      /* the same as its launch's; all of a graph share one */
    uint32_t name;             /* number of a kernel's name */
    uint8_t kind;              /* enum cupti_work_kind */
    uint8_t copy_kind;         /* CUpti_ActivityMemcpyKind */
    bool is_repeated;          /* the same was delivered before */
    uint32_t stream;
    uint64_t node; /* of a graph; 0: none */
};

/* A call of the runtime or of the driver. */
struct cupti_call {
    uint32_t correlation;
    bool is_graph_launch;
    bool has_work;
};

/* What cuptiActivityPushExternalCorrelationId() had said when a call was made. */
struct cupti_external {
    uint32_t correlation;
    uint32_t kind; /* CUpti_ExternalCorrelationKind */
    uint64_t id;
};

struct cupti_overhead {
    uint64_t start_ns, end_ns;
    uint32_t kind; /* CUpti_ActivityOverheadKind */
};

/* A range of a domain of NVTX that is not ours. */
struct cupti_marker {
    uint64_t start_ns, end_ns; /* end 0: still open */
    size_t name;               /* offset of "DOMAIN: name" in `text` */
    uint32_t id;
};

/* An array that grows; `at` is of the member's type. */
#define CUPTI_ARRAY(type)                                                                          \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count, capacity;                                                                    \
    }

struct cupti_kernel_name {
    const char *given; /* CUPTI's pointer, to know the name again; not followed */
    size_t name;       /* offset of the copy in `text` */
};

struct cupti_records {
    CUPTI_ARRAY(struct cupti_work) work;
    CUPTI_ARRAY(struct cupti_call) calls;
    CUPTI_ARRAY(struct cupti_external) externals;
    CUPTI_ARRAY(struct cupti_overhead) overheads;
    CUPTI_ARRAY(struct cupti_marker) markers;
    CUPTI_ARRAY(struct cupti_kernel_name) names;
    struct dpb_str text;
    int64_t own_markers;     /* begins of ranges in domain "dpbench" */
    int64_t others;          /* records of kinds that nobody asked for */
    int64_t damaged_buffers; /* that ended in what is no record */
    int64_t sync_wait_ns;    /* length of synchronising calls */
    bool no_memory;
};

/* Add the records of one buffer. What cannot be read ends it and is counted. */
void cupti_records_read(struct cupti_records *records, const struct cupti_table *table,
                        uint8_t *buffer, size_t valid_bytes);

void cupti_records_release(struct cupti_records *records);

#endif
