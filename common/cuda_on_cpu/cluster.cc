/* cluster.cc: clusters: blocks that see one another's shared memory, and their barrier. */
#include "cuda_on_cpu/executor.h"

namespace cuda_on_cpu
{

UNSEEN unsigned cluster_rank(void) { return self->current->block->rank; }
UNSEEN unsigned cluster_size(void) { return self->n_blocks; }

UNSEEN void *cluster_map(const void *shared, unsigned rank, const struct caller &where)
{
    const struct block *mine = self->current->block;
    if (rank >= self->n_blocks)
        fail(where, "block %u of a cluster of %u", rank, self->n_blocks);
    const struct block *other = &self->blocks[rank];
    if (other->n_done)
        fail(where, "block %u of the cluster is leaving: its shared memory ends", rank);
    return other->shared + ((const char *)shared - mine->shared);
}

UNSEEN void cluster_arrive(const struct caller &where)
{
    struct fibre *f = self->current;
    if (f->cluster_arrived) fail(where, "arrives twice at the cluster barrier");
    f->cluster_arrived = true;
    f->cluster_phase = self->cluster_phase;
    TSAN(__tsan_release(&self->cluster_phase));
    if (++self->cluster_arrived < self->n_fibres) return;
    TSAN(__tsan_acquire(&self->cluster_phase));
    self->cluster_arrived = 0;
    self->cluster_phase++;
    for (unsigned i = 0; i < self->n_fibres; i++) {
        if (self->fibres[i].state == AT_CLUSTER) self->fibres[i].state = READY;
        TSAN(__tsan_release(&self->fibres[i]));
    }
}

UNSEEN void cluster_wait(const struct caller &where)
{
    struct fibre *f = self->current;
    if (!f->cluster_arrived) fail(where, "waits at the cluster barrier without arriving");
    if (f->cluster_phase == self->cluster_phase)
        wait_as(AT_CLUSTER, "a cluster barrier", where);
    TSAN(__tsan_acquire(f));
    f->cluster_arrived = false;
}

} // namespace cuda_on_cpu
