/* async_copy.cc: cp.async: a copy takes place when its thread waits for it. */
#include "cuda_on_cpu/executor.h"
#include "cuda_on_cpu/mma_on_cpu.h"

namespace cuda_on_cpu
{

UNSEEN void cp_async(void *to, const void *from, size_t bytes, size_t bytes_read,
                     const struct caller &where)
{
    if ((bytes != 4 && bytes != 8 && bytes != 16) || bytes_read > bytes)
        fail(where, "cp.async of %zu bytes, %zu of them read", bytes, bytes_read);
    if ((uintptr_t)to % bytes || (bytes_read && (uintptr_t)from % bytes))
        fail(where, "cp.async: addresses must be multiples of %zu", bytes);
    self->current->copies.push_back({to, from, bytes, bytes_read});
}

UNSEEN void cp_async_commit(void)
{
    struct fibre *f = self->current;
    f->groups.push_back(std::move(f->copies));
    f->copies.clear();
}

void cp_async_wait(unsigned groups_left)
{
    for (auto &groups = self->current->groups; groups.size() > groups_left;
         groups.erase(groups.begin()))
        for (const struct copy &c : groups.front()) {
            memcpy(c.to, c.from, c.bytes_read);
            memset((char *)c.to + c.bytes_read, 0, c.bytes - c.bytes_read);
        }
}

} // namespace cuda_on_cpu
