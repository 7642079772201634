/* world_mpi.c: one process for each rank: a program that mpirun starts.
 *
 *     mpirun -n 4 build/04_monoid_tiled_cpu_mpi check --strategy ring
 *
 * Every process takes the same path through the program, and process 0 speaks.  Where one fails,
 * all learn of it (world_agree), process 0 says which and why, and all end with one status. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/complain.h"
#include "ranks/shards.h"
#include "ranks/world.h"

struct world world;
static struct stage present;

/* Messages in pieces that an int can count. */
enum { PIECE = 1 << 28 };

void world_share(void *bytes, size_t n)
{
    for (size_t at = 0; at < n; at += PIECE)
        MPI_Bcast((char *)bytes + at, (int)(n - at < PIECE ? n - at : PIECE), MPI_BYTE, 0,
                  MPI_COMM_WORLD);
}

static double reduced(double x, MPI_Op operation)
{
    double all, began = MPI_Wtime();
    int done = 0;
    MPI_Request pending;
    if (world.patience == 0) {
        MPI_Allreduce(&x, &all, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
        return all;
    }
    MPI_Iallreduce(&x, &all, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD, &pending);
    while (MPI_Test(&pending, &done, MPI_STATUS_IGNORE), !done)
        if (MPI_Wtime() - began > world.patience)
            world_abort("another process has not answered for 30 s");
    return all;
}

double world_max(double x) { return reduced(x, MPI_MAX); }
double world_sum(double x) { return reduced(x, MPI_SUM); }

void world_send(void *bytes, size_t n, int from)
{
    for (size_t at = 0; at < n; at += PIECE) {
        int count = (int)(n - at < PIECE ? n - at : PIECE);
        char *x = (char *)bytes + at;
        if (world.first) MPI_Send(x, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        else MPI_Recv(x, count, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int world_agree(const char *why, int status)
{
    char text[2048] = "";
    int mine = why ? world.first : world.ranks, first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == world.ranks) return 0;
    int is_named = first == world.first && !strncmp(why, "rank ", 5);
    if (is_named) snprintf(text, sizeof text, "%s", why);
    else if (first == world.first) snprintf(text, sizeof text, "rank %d: %s", first, why);
    MPI_Bcast(text, sizeof text, MPI_CHAR, first, MPI_COMM_WORLD);
    if (world.first == 0) announce(&present, text);
    return status;
}

void world_abort(const char *why)
{
    fflush(stdout);
    announce(&present, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _Exit(1);
}

int on_ranks(const struct stage *stage, unsigned verb, const struct options *opt)
{
    return verb_on_ranks(stage, verb, opt);
}

/* The number of this process among those of its machine: the number of its GPU. */
static int place_on_machine(void)
{
    int place;
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &place);
    MPI_Comm_free(&machine);
    return place;
}

int main_on_mpi(int argc, char **argv, const struct stage *stage)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.first);
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    world.local = 1;
    world.place = place_on_machine();
    present = stage_of_ranks(stage);
    complain_silently(world.first > 0);
    if (world.first && !freopen("/dev/null", "w", stdout)) MPI_Abort(MPI_COMM_WORLD, 1);
    int status = stage_main(argc, argv, &present);
    world_share(&status, sizeof status);
    MPI_Finalize();
    return status;
}
