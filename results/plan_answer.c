#include "dpb_capacity_plan.h"

#include <math.h>

const char *dpb_capacity_target_key(enum dpb_capacity_target target)
{
    static const char *const keys[] = {
#define KEY(name, key, text) key,
            DPB_CAPACITY_TARGET_MAP(KEY)
#undef KEY
    };

    return keys[target];
}

const char *dpb_capacity_target_text(enum dpb_capacity_target target)
{
    static const char *const texts[] = {
#define TEXT(name, key, text) text,
            DPB_CAPACITY_TARGET_MAP(TEXT)
#undef TEXT
    };

    return texts[target];
}

const char *dpb_capacity_loss_text(enum dpb_capacity_loss loss)
{
    static const char *const texts[] = {
#define TEXT(name, key, text) text,
            DPB_CAPACITY_LOSS_MAP(TEXT)
#undef TEXT
    };

    return texts[loss];
}

/* ---- one option and one target ---- */

double dpb_capacity_value(const struct dpb_capacity_option *option, enum dpb_capacity_target target)
{
    switch (target) {
    case DPB_TARGET_DEADLINE:
        return option->wall_s;
    case DPB_TARGET_BUDGET:
        return option->cost;
    case DPB_TARGET_EFFICIENCY:
        return option->efficiency;
    default:
        return option->p99_ns;
    }
}

double dpb_capacity_missed(const struct dpb_capacity_option *option,
                           enum dpb_capacity_target target, double wanted)
{
    const double value = dpb_capacity_value(option, target);
    const double missed = target == DPB_TARGET_EFFICIENCY ? wanted / value - 1 : value / wanted - 1;

    if (isnan(wanted))
        return 0;
    return isnan(missed) ? INFINITY : fmax(missed, 0);
}

/* The largest miss of all targets; 0: it meets them. */
static double worst(const struct dpb_capacity_option *option, const double *target)
{
    double most = 0;

    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        most = fmax(most, dpb_capacity_missed(option, t, target[t]));
    return most;
}

/* ---- the choice ---- */

struct choice {
    const struct dpb_capacity_option *options;
    size_t count;
    const double *target;
    bool by_cost, by_time; /* else by accelerators */
};

static int compare(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) ? 0 : a < b ? -1 : 1;
}

/* Among options that meet every target: is `a` better? */
static bool is_better(const struct choice *choice, const struct dpb_capacity_option *a,
                      const struct dpb_capacity_option *b)
{
    int order = choice->by_time   ? compare(a->wall_s, b->wall_s)
                : choice->by_cost ? compare(a->cost, b->cost)
                                  : compare(a->accelerators, b->accelerators);

    if (order == 0)
        order = compare(a->wall_s, b->wall_s);
    if (order == 0)
        order = compare(a->accelerators, b->accelerators);
    return order < 0;
}

/* Costs that differ by less say nothing of which is cheaper. */
#define SAME_COST 0.02

/* Of those that meet every target and cost as much as the cheapest, the fewest accelerators. */
static int fewest_as_cheap(const struct choice *choice, int cheapest)
{
    const double most = (1 + SAME_COST) * choice->options[cheapest].cost;
    int best = cheapest;

    for (size_t i = 0; i < choice->count; i++) {
        const struct dpb_capacity_option *option = &choice->options[i];

        if (option->fits && worst(option, choice->target) == 0 && option->cost <= most &&
            option->accelerators < choice->options[best].accelerators)
            best = (int)i;
    }
    return best;
}

/* The best of those that meet every target; -1: none does. */
static int best_that_meets(struct choice *choice)
{
    int best = -1;

    choice->by_time = isnan(choice->target[DPB_TARGET_DEADLINE]);
    choice->by_cost = true;
    for (size_t i = 0; i < choice->count; i++)
        if (choice->options[i].fits && worst(&choice->options[i], choice->target) == 0)
            choice->by_cost = choice->by_cost && !isnan(choice->options[i].cost);
    for (size_t i = 0; i < choice->count; i++) {
        const struct dpb_capacity_option *option = &choice->options[i];

        if (option->fits && worst(option, choice->target) == 0 &&
            (best < 0 || is_better(choice, option, &choice->options[best])))
            best = (int)i;
    }
    return best >= 0 && choice->by_cost && !choice->by_time ? fewest_as_cheap(choice, best) : best;
}

static int nearest(const struct choice *choice)
{
    int found = -1;

    for (size_t i = 0; i < choice->count; i++)
        if (choice->options[i].fits &&
            (found < 0 || worst(&choice->options[i], choice->target) <
                                  worst(&choice->options[found], choice->target)))
            found = (int)i;
    return found;
}

static int best_for(const struct choice *choice, enum dpb_capacity_target target)
{
    const double sign = target == DPB_TARGET_EFFICIENCY ? -1 : 1;
    double least = INFINITY;
    int best = -1;

    for (size_t i = 0; i < choice->count; i++) {
        const double value = sign * dpb_capacity_value(&choice->options[i], target);

        if (choice->options[i].fits && value < least) {
            least = value;
            best = (int)i;
        }
    }
    return best;
}

/* ---- what gives way first ---- */

static enum dpb_capacity_loss largest_loss(const struct dpb_capacity_option *option)
{
    int largest = 0;

    for (int l = 1; l < DPB_LOSS_COUNT; l++)
        if (option->loss_ns[l] > option->loss_ns[largest])
            largest = l;
    return largest;
}

/* The next larger number of the same machine's accelerators; -1: none. */
static int next_larger(const struct choice *choice, int index)
{
    const struct dpb_capacity_option *here = &choice->options[index];
    int next = -1;

    for (size_t i = 0; i < choice->count; i++)
        if (choice->options[i].machine_index == here->machine_index &&
            choice->options[i].accelerators > here->accelerators &&
            (next < 0 || choice->options[i].accelerators < choice->options[next].accelerators))
            next = (int)i;
    return next;
}

static void give_way(const struct dpb_capacity_option *options, int index, const char *what,
                     struct dpb_capacity_answer *answer)
{
    const enum dpb_capacity_loss loss = largest_loss(&options[index]);

    answer->strain.option = index;
    answer->strain.share = what ? NAN : options[index].loss_ns[loss] / options[index].step_ns;
    answer->strain.what = what ? what : dpb_capacity_loss_text(loss);
}

/* A target that the answer itself misses says nothing about growing. */
static bool fails(const struct choice *choice, const struct dpb_capacity_answer *answer, int index,
                  enum dpb_capacity_target target)
{
    return answer->missed[target] == 0 &&
           dpb_capacity_missed(&choice->options[index], target, choice->target[target]) > 0;
}

static void find_strain(const struct choice *choice, struct dpb_capacity_answer *answer)
{
    int last = answer->option;

    answer->strain.is_limit = true;
    for (int i = next_larger(choice, last); i >= 0; i = next_larger(choice, i)) {
        last = i;
        if (!choice->options[i].fits) {
            give_way(choice->options, i, "memory", answer);
            return;
        }
        if (fails(choice, answer, i, DPB_TARGET_BUDGET)) {
            give_way(choice->options, i, "budget", answer);
            return;
        }
        if (fails(choice, answer, i, DPB_TARGET_EFFICIENCY) ||
            fails(choice, answer, i, DPB_TARGET_STEP_P99) ||
            fails(choice, answer, i, DPB_TARGET_DEADLINE)) {
            give_way(choice->options, i, NULL, answer);
            return;
        }
    }
    answer->strain.is_limit = false;
    give_way(choice->options, last, NULL, answer);
}

void dpb_capacity_answer(const struct dpb_capacity_option *options, size_t count,
                         const double target[DPB_TARGET_COUNT], struct dpb_capacity_answer *answer)
{
    struct choice choice = {options, count, target, false, false};
    const int best = best_that_meets(&choice);

    *answer = (struct dpb_capacity_answer){
            .option = best >= 0 ? best : nearest(&choice),
            .is_met = best >= 0,
            .strain = {.what = "memory", .option = -1, .share = NAN, .is_limit = true},
    };
    for (int t = 0; t < DPB_TARGET_COUNT; t++) {
        answer->missed[t] = NAN;
        answer->best_for[t] = best_for(&choice, t);
        if (answer->option >= 0 && !isnan(target[t]))
            answer->missed[t] = dpb_capacity_missed(&options[answer->option], t, target[t]);
    }
    if (answer->option >= 0)
        find_strain(&choice, answer);
}

/* ---- time against cost ---- */

static double spent(const struct dpb_capacity_option *option)
{
    return isnan(option->cost) ? option->accelerators * option->wall_s : option->cost;
}

bool dpb_capacity_is_on_front(const struct dpb_capacity_option *options, size_t count, size_t index)
{
    const struct dpb_capacity_option *option = &options[index];

    for (size_t i = 0; i < count; i++) {
        const struct dpb_capacity_option *other = &options[i];
        const int time = compare(other->wall_s, option->wall_s);
        const int cost = compare(spent(other), spent(option));

        if (i == index || !other->fits || isnan(other->cost) != isnan(option->cost))
            continue;
        if (time <= 0 && cost <= 0 && time + cost < 0)
            return false;
    }
    return option->fits;
}
