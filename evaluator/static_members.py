"""Members of the modules a candidate may reach: an allow-list, because a module hands out whatever it imported itself.

Taken from torch 2.13 and triton 3.9: operators, classes, data types; no module, nothing that reads files, reaches
streams or sets what holds for the whole process. `tests/evaluator/test_static_members.py` holds it against what is
installed.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TENSOR_FUNCTIONS = _words(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin aminmax angle
    any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere as_strided
    as_strided_scatter asin asinh atan atan2 atanh baddbmm bernoulli bincount bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to ceil cholesky cholesky_inverse
    cholesky_solve chunk clamp clamp_max clamp_min clip clone conj conj_physical copysign corrcoef cos cosh
    count_nonzero cov cross cummax cummin cumprod cumsum deg2rad det detach diag diag_embed diagflat diagonal
    diagonal_scatter diff digamma dist div divide dot dsplit eq equal erf erfc erfinv exp exp2 expm1 fill fix flatten
    flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac frexp gather gcd ge geqrf ger get_device
    greater greater_equal gt hardshrink heaviside histc histogram hsplit hypot i0 igamma igammac imag index_add
    index_copy index_fill index_put index_reduce index_select inner inverse is_complex is_conj is_distributed
    is_floating_point is_neg is_nonzero is_same_size is_signed isclose isfinite isinf isnan isneginf isposinf isreal
    istft kron kthvalue lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 log_softmax logaddexp logaddexp2
    logcumsumexp logdet logical_and logical_not logical_or logical_xor logit logsumexp lt lu lu_solve masked_fill
    masked_scatter masked_select matmul matrix_exp matrix_power max maximum mean median min minimum mm mode moveaxis
    movedim msort mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow
    narrow_copy ne neg negative nextafter nonzero nonzero_static norm normal not_equal numel orgqr ormqr outer permute
    pinverse polygamma positive pow prelu prod put qr quantile rad2deg ravel real reciprocal relu remainder renorm
    repeat_interleave reshape resize_as_ resize_as_sparse_ resolve_conj resolve_neg roll rot90 round rsqrt scatter
    scatter_add scatter_reduce select select_scatter sgn sigmoid sign signbit sin sinc sinh slice_inverse
    slice_scatter slogdet smm softmax sort split split_with_sizes sqrt square squeeze sspaddmm std stft sub subtract
    sum svd swapaxes swapdims t take take_along_dim tan tanh tensor_split tile topk trace transpose triangular_solve
    tril triu true_divide trunc unbind unflatten unique unique_consecutive unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze var vdot vsplit where xlogy zero_
    """
)
"""Functions of `torch` that are methods of a tensor too."""

_FUNCTIONS = _words(
    """
    adaptive_avg_pool1d adaptive_max_pool1d affine_grid_generator alias_copy alpha_dropout arange as_strided_copy
    as_tensor asarray atleast_1d atleast_2d atleast_3d avg_pool1d bartlett_window batch_norm bilinear
    binary_cross_entropy_with_logits binomial blackman_window block_diag broadcast_shapes broadcast_tensors bucketize
    can_cast cartesian_prod cat ccol_indices_copy cdist celu chain_matmul channel_shuffle choose_qparams_optimized
    col_indices_copy column_stack combinations complex concat concatenate constant_pad_nd conv1d conv2d conv3d
    conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution cosine_embedding_loss cosine_similarity
    crow_indices_copy ctc_loss cumulative_trapezoid detach_copy diagonal_copy dropout dsmm dstack einsum embedding
    embedding_bag embedding_renorm_ empty empty_like empty_permuted empty_quantized empty_strided expand_copy eye
    feature_alpha_dropout feature_dropout frobenius_norm from_numpy frombuffer full full_like gradient grid_sampler
    grid_sampler_2d grid_sampler_3d group_norm gru gru_cell hamming_window hann_window hinge_embedding_loss
    histogramdd hsmm hspmm hstack indices_copy instance_norm is_vulkan_available isin kaiser_window kl_div layer_norm
    linspace logspace lstm lstm_cell lu_unpack margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
    max_pool3d meshgrid norm_except_dim nuclear_norm ones ones_like pairwise_distance pca_lowrank pdist permute_copy
    pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar promote_types rand rand_like randint randint_like
    randn randn_like randperm range result_type rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    row_indices_copy row_stack rrelu rsub saddmm scalar_tensor searchsorted segment_reduce select_copy selu slice_copy
    sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
    split_copy split_with_sizes_copy spmm squeeze_copy stack std_mean svd_lowrank t_copy tensor tensordot threshold
    transpose_copy trapezoid trapz tril_indices triplet_margin_loss triu_indices unbind_copy unfold_copy unique_dim
    unravel_index unsqueeze_copy values_copy vander var_mean view_as_complex view_as_complex_copy view_as_real
    view_as_real_copy view_copy vmap vstack zeros zeros_like
    """
)

_DTYPES = _words(
    """
    bfloat16 bit bool cdouble cfloat chalf complex128 complex32 complex64 double float float16 float32
    float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu half int int1
    int16 int2 int3 int32 int4 int5 int6 int64 int7 int8 long short uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6
    uint64 uint7 uint8
    """
)

_TORCH = _words(
    """
    channels_last channels_last_3d contiguous_format jagged legacy_contiguous_format preserve_format sparse_bsc
    sparse_bsr sparse_coo sparse_csc sparse_csr strided AcceleratorError BoolTensor ByteTensor CharTensor DoubleTensor
    FloatTensor Generator HalfTensor BFloat16Tensor IntTensor LongTensor OutOfMemoryError ShortTensor Size SymBool
    SymFloat SymInt Tensor autocast device dtype e enable_grad finfo get_default_dtype iinfo inf inference_mode
    is_autocast_enabled is_tensor layout memory_format nan newaxis no_grad pi
    """
)

_NN_FUNCTIONAL = _words(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
    adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices
    affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout dropout1d
    dropout2d dropout3d elu elu_ embedding embedding_bag feature_alpha_dropout fold fractional_max_pool2d
    fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices gaussian_nll_loss gelu
    glu grid_sample group_norm grouped_mm gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_
    hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear
    linear_cross_entropy local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss
    max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
    max_unpool1d max_unpool2d max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss native_channel_shuffle nll_loss normalize one_hot pad
    pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu
    rrelu_ scaled_dot_product_attention scaled_grouped_mm scaled_mm selu selu_ sigmoid silu smooth_l1_loss
    soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold threshold_
    triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear upsample_nearest
    """
)

_LINALG = _words(
    """
    cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor
    ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm matrix_power
    matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve
    vander vecdot vector_norm
    """
)

_SPECIAL = _words(
    """
    airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
    chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
    gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
    legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round shifted_chebyshev_polynomial_t
    shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 sinc softmax spherical_bessel_j0 xlog1py xlogy zeta
    """
)

_LANGUAGE = _words(
    """
    PropagateNan TRITON_MAX_TENSOR_NUMEL abs add arange argmax argmin associative_scan assume atomic_add atomic_and
    atomic_cas atomic_load atomic_max atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor bfloat16
    bitonic_merge block_type broadcast broadcast_to cast cat cdiv ceil clamp condition const constexpr constexpr_type
    cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled dtype erf exp exp2 expand_dims
    expect_zero fdiv flip float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 floor fma
    full gather histogram inline_asm_elementwise int1 int16 int32 int64 int8 interleave join load
    load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor map_elementwise max max_constancy
    max_contiguous maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute philox philox_impl
    pi32_t pointer_type program_id rand rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape
    rsqrt sigmoid sin slice softmax sort split sqrt sqrt_rn squeeze static_assert static_print static_range store
    store_tensor_descriptor sub sum swizzle2d tensor tensor_descriptor tensor_descriptor_type to_tensor topk trans
    tuple tuple_type uint16 uint32 uint64 uint8 uint_to_uniform_float umulhi unsqueeze view void where xor_sum zeros
    zeros_like
    """
)

_LANGUAGE_CORE = _words("advance base_type base_value get_int_dtype tensor_descriptor_base")

_INDUCTOR_HELPERS = _words(
    """
    any bucketize_binary_search constexpr_next_power_of_2 device_assert_then div_floor_integer
    exclusive_scan_decoupled_lookback exclusive_scan_decoupled_lookback_64 exp fp8e4m3fn_to_float32 frexp if_mask
    inline_asm_pack inline_asm_unpack is_floating max2 max_with_index maximum maximum_with_index min2 min_with_index
    minimum minimum_with_index online_softmax_combine online_softmax_combine_with_sum online_softmax_reduce
    pack_value_flag pow_integer prod promote_to_tensor rand4x rand_eager_kernel randint64 randn4x remainder_integer
    select_one set_driver_to_cpu set_driver_to_gpu sort_with_index unpack_flag unpack_value welford welford_combine
    welford_reduce x_grid_barrier
    """
)

MEMBERS: dict[str, frozenset[str]] = {
    "torch": TENSOR_FUNCTIONS | _FUNCTIONS | _DTYPES | _TORCH,
    "torch.nn": frozenset({"factory_kwargs"}),
    "torch.nn.functional": _NN_FUNCTIONAL,
    "torch.nn.attention": frozenset({"SDPBackend", "sdpa_kernel"}),
    "torch.nn.init": _words(
        """
        constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ sparse_ trunc_normal_
        uniform_ xavier_normal_ xavier_uniform_ zeros_ calculate_gain
        """
    ),
    "torch.nn.parameter": frozenset({"Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"}),
    "torch.nn.utils": frozenset(
        {"parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"}
    ),
    "torch.nn.utils.parametrizations": frozenset({"orthogonal", "spectral_norm", "weight_norm"}),
    "torch.nn.utils.rnn": frozenset(
        {"PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence"}
    ),
    "torch.autograd": frozenset({"Function"}),
    "torch.autograd.function": frozenset({"Function", "FunctionCtx", "once_differentiable"}),
    "torch.cuda": _words("current_device device device_of get_device_capability get_device_properties is_available"),
    "torch.linalg": _LINALG,
    "torch.sparse": frozenset({"addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "sum"}),
    "torch.special": _SPECIAL,
    "torch.fft": _words(
        """
        fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift
        ifftshift
        """
    ),
    "torch.amp": frozenset({"autocast", "custom_bwd", "custom_fwd", "is_autocast_available"}),
    "torch.func": frozenset({"grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"}),
    "torch._inductor": frozenset(),
    "torch._inductor.runtime": frozenset(),
    "torch._inductor.runtime.triton_helpers": _INDUCTOR_HELPERS,
    "torch._inductor.runtime.triton_helpers.libdevice": frozenset(),
    "torch._inductor.runtime.triton_helpers.math": _LANGUAGE,
    "torch._inductor.runtime.triton_helpers.tl": _LANGUAGE,
    "torch._inductor.runtime.triton_heuristics": _words(
        """
        cooperative_reduction cooperative_reduction_grid end_graph fixed_config foreach grid grid_combo_kernels
        mix_order_reduction persistent_cooperative_reduction persistent_reduction pointwise reduction split_scan
        split_scan_grid start_graph template user_autotune
        """
    ),
    "torch._inductor.runtime.hints": _words(
        """
        AttrsDescriptorWrapper AutotuneHint DeviceProperties HeuristicType ReductionHint TRITON_MAX_BLOCK
        TRITON_MAX_RSPLIT TileHint instance_descriptor
        """
    ),
    "torch._inductor.runtime.triton_compat": frozenset({"Config", "HAS_TRITON", "HAS_WARP_SPEC", "OutOfResources"}),
    "torch._inductor.runtime.triton_compat.libdevice": frozenset(),
    "torch._inductor.runtime.triton_compat.tl": _LANGUAGE,
    "torch._inductor.runtime.triton_compat.triton": frozenset({"Config", "autotune", "cdiv", "heuristics", "jit"}),
    "triton": _words(
        """
        CompilationError Config OutOfResources TritonError aggregate autotune cdiv constexpr_function heuristics jit
        must_use_result next_power_of_2 reinterpret set_allocator
        """
    ),
    "triton.language": _LANGUAGE,
    "triton.language.core": _LANGUAGE | _LANGUAGE_CORE,
    "triton.language.math": _LANGUAGE,
    "triton.language.standard": _LANGUAGE,
    "triton.language.random": _LANGUAGE,
    "triton.language.target_info": frozenset({"cuda_capability_geq", "current_target", "is_cuda", "is_hip"}),
    "triton.language.extra": frozenset(),
    "triton.language.extra.libdevice": frozenset(),
    "triton.language.extra.cuda": _words(
        """
        convert_custom_float8 convert_custom_float8_sm70 convert_custom_float8_sm80 gdc_launch_dependents gdc_wait
        globaltimer num_threads num_warps smid
        """
    ),
    "triton.language.extra.cuda.gdc": frozenset({"gdc_launch_dependents", "gdc_wait"}),
    "triton.language.extra.cuda.libdevice": frozenset(),
    "triton.language.extra.hip": frozenset({"memrealtime", "num_threads", "num_warps", "smid"}),
    "triton.language.extra.hip.libdevice": frozenset(),
    "triton.tools": frozenset(),
    "triton.tools.tensor_descriptor": frozenset({"TensorDescriptor"}),
    "math": _words(
        """
        acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1
        fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp
        lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt sumprod tan
        tanh tau trunc ulp
        """
    ),
    "operator": _words(
        """
        abs add and_ concat contains countOf eq floordiv ge getitem gt iadd iand iconcat ifloordiv ilshift imatmul
        imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itemgetter itruediv ixor le lshift lt
        matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor
        """
    ),
    "functools": _words("cache cached_property cmp_to_key lru_cache partial partialmethod reduce wraps"),
    "itertools": _words(
        """
        accumulate batched chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse
        groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest
        """
    ),
    "collections": frozenset({"ChainMap", "Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"}),
    "collections.abc": frozenset(),
    "typing": _words(
        """
        assert_never assert_type cast dataclass_transform final get_args get_origin is_typeddict overload
        runtime_checkable
        """
    ),
    "dataclasses": _words(
        """
        FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields is_dataclass replace
        """
    ),
    "__future__": frozenset({"annotations"}),
    "enum": _words("Enum Flag IntEnum IntFlag StrEnum auto member nonmember unique"),
}
"""Modules that may be imported or named, each with the members that a kernel file needs."""

DECORATORS = frozenset(
    {
        *("dataclasses.dataclass", "functools.wraps", "enum.unique", "typing.final", "typing.runtime_checkable"),
        *("typing.dataclass_transform", "triton.aggregate", "triton.must_use_result"),
    }
)
"""Members that change what they are given: named as decorators of the candidate's own classes and functions only."""

CAPITALISED = frozenset({"torch.nn", "typing", "collections.abc"})
"""Modules whose capitalised members are all classes or forms of types: every one of those may be named."""

HELD = {
    "triton.language": _words("aggregate_replace builtins driver ir knobs runtime semantic str_to_ty"),
    **{name: frozenset({"core"}) for name in MEMBERS if name.endswith(".libdevice")},
}
"""Modules whose own names are functions and types of the device alone, with the few others that they hold."""

LOWER_CASE_CLASSES = _DTYPES | _words(
    """
    bfloat16 block_type chain constexpr defaultdict deque device dtype float16 float32 float64 float8e4b15 float8e4b8
    float8e4nv float8e5 float8e5b16 finfo iinfo int1 int16 int32 int64 int8 layout memory_format partial pointer_type
    tensor tensor_descriptor uint16 uint32 uint64 uint8 void
    """
)
"""Members whose own attributes may be named although they do not begin with a capital letter."""

ONLY_METHODS = _words(
    """
    apply_ backward cauchy_ coalesce cpu dense_dim eig exponential_ fill_diagonal_ geometric_ log_normal_ lstsq map2_
    map_ numpy random_ record_stream reinforce repeat resize resize_as solve sparse_mask sum_to_size symeig to_dense
    to_mkldnn to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr tolist
    uniform_
    """
)
"""Methods of a tensor that compute, move or fill, and that are no functions of `torch`."""

MODULE_PRIVATE = _words(
    """
    _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks
    _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules _named_members
    _non_persistent_buffers_set _parameters _register_load_state_dict_pre_hook _register_state_dict_hook
    _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version
    _wrapped_call_impl
    """
)
"""Names that `torch.nn.Module` keeps for itself; a class that defines one replaces how modules are called."""
