/* validate.h (private): rows of published tables, and what is predicted of them. */
#ifndef VALIDATE_H
#define VALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_csv.h"
#include "dpb_machine.h"
#include "dpb_registry.h"
#include "dpb_str.h"
#include "dpb_validate.h"
#include "dpb_workload.h"

/* ---- constants ---- */

/* identifier, name in the file, least, most, what planning assumes, what it is. A constant that no
 * row says anything of keeps what is assumed. */
#define VALIDATE_CONSTANT_MAP(X)                                                                   \
    X(RDMA_SHARE, "rdma-share", 0.15, 0.9, 0.73,                                                   \
      "of a card's rate that rings between nodes reach, InfiniBand and RoCE")                      \
    X(ETHERNET_SHARE, "ethernet-share", 0.15, 0.9, 0.73, "the same over TCP")                      \
    X(STRAGGLER, "straggler", 0.0, 0.2, 0.0133,                                                    \
      "standard deviation of a rank's micro-batch, share of it")                                   \
    X(HOST_FULL, "host-full", 0.0, 0.5, 0.0,                                                       \
      "what accelerators of a node lose to each other on their host, share of a micro-batch in "   \
      "fp32 or TF32")                                                                              \
    X(HOST_REDUCED, "host-reduced", 0.0, 0.5, 0.0, "the same in fp16 or bf16")                     \
    X(HOST_STORED, "host-stored", 0.0, 0.5, 0.0,                                                   \
      "added to it where batches are said to be real data")                                        \
    X(STEP_MS, "step", 0.0, 50.0, 0.0, "milliseconds that a step with others takes longer")

enum validate_constant {
#define VALIDATE_ENUM(id, name, least, most, assumed, help) VALIDATE_##id,
    VALIDATE_CONSTANT_MAP(VALIDATE_ENUM)
#undef VALIDATE_ENUM
    VALIDATE_CONSTANT_COUNT
};

struct validate_constants {
    double value[VALIDATE_CONSTANT_COUNT];
};

const char *validate_constant_name(enum validate_constant id);
const char *validate_constant_help(enum validate_constant id);

/* Shares of links between nodes that simulations are prepared for, ascending. */
#define VALIDATE_SHARES 8
extern const double validate_shares[VALIDATE_SHARES];

/* ---- models ---- */

struct validate_model {
    const char *name;     /* "resnet-50"; "": excluded for `source` */
    const char *workload; /* of this program; "": none */
    const char *layers;   /* name of an embedded table; "": none */
    double parameters, tensors;
    const char *optimizer, *kind, *source;
    double batch_full, batch_reduced; /* assumed where a table has none; NaN */
    double tokens_per_sample;         /* NaN: throughput is in samples */
    struct dpb_model *made;           /* of layers or parameters; NULL: the workload's */
};

struct validate_models {
    struct dpb_csv csv;
    struct validate_model *model;
};

dpb_status validate_models_read(struct validate_models *models);
void validate_models_release(struct validate_models *models);
/* The model of that name in a table, or NULL. */
struct validate_model *validate_models_find(struct validate_models *models, const char *text);
/* Its network, of layers or parameters (not of a workload); owned by it. */
dpb_status validate_model_network(struct validate_model *model);
void validate_model_network_free(struct dpb_model *network);

/* ---- rows ---- */

enum validate_link {
    VALIDATE_INSIDE, /* one node only */
    VALIDATE_RDMA,
    VALIDATE_ETHERNET
};

/* What a machine is, as a table tells it. */
struct validate_machine {
    char name[48];           /* of a profile; "": unknown */
    int per_node;            /* 0: as the profile has it */
    int nics;                /* 0: as the profile has it */
    double nic_bytes_per_s;  /* 0: as the profile has it */
    enum validate_link link; /* between nodes */
    bool one_node;           /* nothing is said of a network */
};

struct validate_system {
    const char *strategy; /* NULL: excluded for `why` */
    const char *why;
    bool wants_mwms;     /* mirrored inside a node */
    bool after_backward; /* nothing overlaps */
    bool wide_gradients; /* fp32 also where compute is in 16 bits */
    int bucket_mib;      /* 0: the strategy's own */
};

struct validate_row {
    size_t at; /* in the table */
    const char *source, *system, *model_text, *precision, *gpu, *interconnect, *notes;
    char project[96]; /* "owner/name" of the source */
    double gpus, batch, throughput, printed_pct;
    bool is_reduced, is_stored;
    double accumulate;
    int series;            /* rows of the same number differ in accelerators only */
    bool has_larger;       /* its series has */
    const char *exclusion; /* NULL: in scope */
    /* in scope, and base rows of series in scope */
    struct validate_model *model;
    struct validate_machine machine;
    struct validate_system how;
    struct validate_row *base;
    /* simulated: for every share between nodes, or all the same inside one */
    double step_ns[VALIDATE_SHARES], micro_ns[VALIDATE_SHARES];
    bool is_simulated;
    int per_node;
    bool across;                           /* nodes */
    double normal_max;                     /* mean of the largest of so many standard normals */
    double published, predicted, held_out; /* efficiency, shares */
};

struct validate_table {
    struct dpb_csv csv;
    struct validate_models models;
    struct validate_row *row;
    size_t count;
};

/* Read a table (NULL: the embedded one), find series and what is in scope. */
dpb_status validate_table_read(const char *file, struct validate_table *table);
void validate_table_release(struct validate_table *table);

/* Matching, case and punctuation aside. */
void validate_match_machine(const struct validate_row *row, struct validate_machine *machine);
void validate_match_system(const struct validate_row *row, struct validate_system *system);
/* "owner/name" of a source. */
void validate_project(const char *source, char *project, size_t bytes);
/* Only letters and digits, small. */
void validate_squeeze(const char *text, char *squeezed, size_t bytes);

/* ---- predictions ---- */

/* Simulate the steps of all rows in scope and of their bases. A row that cannot be is excluded. */
dpb_status validate_simulate(const struct dpb_registry *registry, struct validate_table *table);
/* Predict with constants from what was simulated. */
double validate_efficiency(const struct validate_row *row, const struct validate_constants *with);

/* ---- constants ---- */

/* Projects whose rows constants are fitted on. */
#define VALIDATE_FITTED 3
extern const char *const validate_fitted[VALIDATE_FITTED];

/* Constants fitted on all of these, and on all but one of them. */
struct validate_fit {
    struct validate_constants all, without[VALIDATE_FITTED];
};
/* Those of the program, results/published/constants.csv. */
dpb_status validate_fit_read(struct validate_fit *fit);
/* Make the mean error least, each project with the same weight. Deterministic. */
void validate_fit_make(const struct validate_table *table, struct validate_fit *fit);
/* As the file. */
void validate_fit_write(const struct validate_fit *fit, struct dpb_str *text);
/* What was fitted without the project's rows. */
const struct validate_constants *validate_fit_held_out(const struct validate_fit *fit,
                                                       const char *project);

/* ---- report ---- */

/* docs/validation.md lists the keys. */
dpb_json *validate_report(const struct validate_table *table, const struct validate_fit *fit,
                          bool *targets_hold);

#endif
