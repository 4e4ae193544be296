// Shows: votes. A warp finds out in one instruction which of its lanes hold an odd number.
extern "C" __global__ void vote(const unsigned* in, unsigned* ballots, unsigned* ranks, unsigned* verdicts, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    bool odd = i < n && in[i] % 2 == 1;
    unsigned ballot = __ballot_sync(0xffffffff, odd);
    unsigned before_me = (1u << lane) - 1;
    if (i < n)
        ranks[i] = odd ? __popc(ballot & before_me) : 0xffffffffu;
    int any_large = __any_sync(0xffffffff, i < n && in[i] > 4000000000u);
    int all_large = __all_sync(0xffffffff, i >= n || in[i] > 1000u);
    if (lane == 0) {
        ballots[i / 32] = ballot;
        verdicts[i / 32] = 2 * any_large + all_large;
    }
}
