/* conv_graph_private.h: a set of plans, as the files that answer for it share it. */
#ifndef DPB_CUDA_CONV_GRAPH_PRIVATE_H
#define DPB_CUDA_CONV_GRAPH_PRIVATE_H

#include "conv_graph.h"
#include "graph.h"

struct dpb_conv_graphs {
    struct dpb_conv_graphs_config config;
    struct dpb_graph_target target;
    struct dpb_conv_plan *plans;
};

#endif
