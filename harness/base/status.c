#include "dpb_status.h"

const char *dpb_status_text(dpb_status st)
{
    switch (st) {
#define DPB_STATUS_CASE(name, number, text, exit_code)                                             \
    case name:                                                                                     \
        return text;
        DPB_STATUS_MAP(DPB_STATUS_CASE)
#undef DPB_STATUS_CASE
    }
    return "unknown status";
}

const char *dpb_status_name(dpb_status st)
{
    switch (st) {
#define DPB_STATUS_CASE(name, number, text, exit_code)                                             \
    case name:                                                                                     \
        return #name;
        DPB_STATUS_MAP(DPB_STATUS_CASE)
#undef DPB_STATUS_CASE
    }
    return "DPB_STATUS_UNKNOWN";
}

int dpb_status_exit_code(dpb_status st)
{
    switch (st) {
#define DPB_STATUS_CASE(name, number, text, exit_code)                                             \
    case name:                                                                                     \
        return exit_code;
        DPB_STATUS_MAP(DPB_STATUS_CASE)
#undef DPB_STATUS_CASE
    }
    return st < 0 ? 3 : 0;
}
