"""Kernels that communicate, by the names that their libraries give them."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.timeline.kineto.communication import (
    ONE_SIDED,
    collective_of,
    looks_like_communication,
    named_kernels,
)

# As profilers print them; where they are from stands beside them.
KERNELS = {
    # NCCL, RCCL, MSCCL
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclSymDevKernel_AllGather_LLMC(ncclSymDevWorkArgs)": "all_gather",
    "ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*, ulong, ncclWork*)": "reduce_scatter",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "collective",
    "rcclGenericKernel<1, false>(ncclDevComm*, unsigned long, ncclWork*)": "collective",
    "mscclKernel_Sum_half_Ring_LL(ncclDevComm*, mscclAlgo*, mscclWork*)": "collective",
    # MSCCL++, and its kernels for experts
    "void mscclpp::allreduce_kernel<half>(half*)": "all_reduce",
    "void mscclpp::collective::allgather8<true>(void*, mscclpp::DeviceHandle<int>*)": "all_gather",
    "void mscclpp::ep::intranode::dispatch<8, 768>(int4*)": "all_to_all",
    # vLLM, SGLang, AITER
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)": "all_reduce",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, int)": "all_reduce",
    "void aiter::cross_device_reduce_2stage_naive<__hip_bfloat16, 4>(int)": "all_reduce",
    "void quickreduce::allreduce_prototype_twoshot<TwoshotF16>(half const*)": "all_reduce",
    # FlashInfer, TensorRT-LLM
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport"
    "<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8>"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionParams<__nv_bfloat16>)": "all_reduce",
    "void moereduce_allreduce_fusion_kernel_oneshot_lamport<half, 8>(Params)": "all_reduce",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(Params)": "all_reduce",
    "void twoShotAllReduceKernel<float, 8>(AllReduceParams)": "all_reduce",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<BlockPolicy>(Ptrs)": "all_to_all",
    # PyTorch's symmetric memory
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>"
    "(c10::BFloat16*, unsigned long, unsigned int**, unsigned long)": "all_reduce",
    "void c10d::symmetric_memory::one_shot_all_reduce_kernel<float, 16, 8>(float**)": "all_reduce",
    "void <unnamed>::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(int)": "all_reduce",
    "void <unnamed>::multimem_all_gather_kernel<16>(char*, char*)": "all_gather",
    # DeepEP: between and within nodes, of low latency, and what prepares them
    "void deep_ep::intranode::dispatch<8, 768>(int4*)": "all_to_all",
    "void deep_ep::internode::combine<true, 4, __nv_bfloat16>(int4*)": "all_to_all",
    "void deep_ep::internode_ll::dispatch<true, 7168>(void*, float*)": "all_to_all",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "all_to_all",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)": "",
    "_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4": "all_to_all",
    # NVSHMEM, rocSHMEM, MoRI
    "void nvshmemi_reduce_kernel<float, (rdxn_ops)3>(int, int, int, float*)": "all_reduce",
    "nvshmemi_alltoall_on_stream_kernel(int, char*, char const*, unsigned long)": "all_to_all",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)": "barrier",
    "nvshmemi_proxy_rma_signal_entrypoint_blocking(void*, void*)": ONE_SIDED,
    "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(mori::moe::Args)": "all_to_all",
    "EpCombineInterNodeV1Kernel_bf16": "all_to_all",
    # Other vendors and packages
    "hcom_allReduce__887_0_1": "all_reduce",
    "HcclAllGather": "all_gather",
    "oneccl_allreduce_small<float>": "all_reduce",
    "cncl_reduce_scatter_kernel": "reduce_scatter",
    "void turbomind::comm::AllreduceKernel_LL<__half>(__half*)": "all_reduce",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)": "reduce_scatter",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": ONE_SIDED,
    # No communication at all
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<int>>(int)": "",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn": "",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)": "",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)": "",
    "void cub::DeviceReduceKernel<nccl_like_policy>(int)": "",
    "void oneflow::cuda::layer_norm::LayerNormBlockAllReduce<float>(float)": "",
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_known_libraries_have_their_kind(name: str) -> None:
    assert collective_of(name) == KERNELS[name]


@pytest.mark.parametrize(
    ("name", "is_alike"),
    [
        ("my_allreduce_kernel", True),
        ("void company::tp::ReduceScatterBf16<8>(int)", True),
        ("ring_attention_comm_fwd", True),
        ("void fast_p2p_copy<8>(char*)", True),
        ("a2a_dispatch", True),
        ("moe_all_to_all_v2", True),
        ("ampere_gemm", False),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", False),
        ("void LayerNormBlockAllReduce<float>(float)", False),
        ("string_compare", False),
        ("commutative_add", False),
        ("void f<my_allreduce>(int)", False),
    ],
)
def test_names_that_look_like_communication(name: str, is_alike: bool) -> None:
    assert looks_like_communication(name) == is_alike


def test_what_a_user_says_of_kernels_comes_first() -> None:
    said = named_kernels(["My_Ring*", "fused*=all_reduce", "cross_device=none", "put=one_sided"])
    assert said.kind_of("my_ring_kernel<8>(int)") == "collective"
    assert said.kind_of("fused_gemm_ar") == "all_reduce"
    assert said.kind_of("void vllm::cross_device_reduce_1stage<half, 8>(int)") == ""
    assert said.kind_of("my_put_kernel") == "one_sided"
    assert said.kind_of("gemm") == ""
    assert said.kind_of("ncclDevKernel_AllReduce_Sum") == "all_reduce"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "give a part of the names"),
        ("*", "give a part of the names"),
        ("=all_reduce", "give a part of the names"),
        ("ring=allreduce", 'unknown kind "allreduce"'),
        ("ring=send", 'unknown kind "send"'),
    ],
)
def test_patterns_that_say_nothing_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        named_kernels([text])
