// Shows: cooperative groups: a tile of 8 threads adds its numbers without naming lanes or masks.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tile_sum(const int* in, int* tile_sums)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int i = blockIdx.x * blockDim.x + block.thread_rank();
    int sum = in[i];
    for (int offset = tile.size() / 2; offset > 0; offset /= 2)
        sum += tile.shfl_down(sum, offset);
    if (tile.thread_rank() == 0)
        tile_sums[i / 8] = sum;
}
