"""The parameters that both estimators document."""

PARAMETERS = """Parameters
    ----------
    n_estimators : int or "auto", default="auto"
        Stages of boosting at the most; early stopping may use fewer. "auto" goes on while the validation score
        improves, up to 1,000 stages; without validation data it does 15 over the boosting rate.
    learning_rate : float or "auto", default="auto"
        Boosting rate in (0, 1]: the fraction of each learner that is added. Smaller with more stages generalises
        better. "auto" is 0.1, and 0.05 below 2,000 training rows; twice that where a regressor averages several chains
        (see ``n_chains``).
    loss : str, Loss or callable
        {losses}
    featurizer : str or callable, default="mlp"
        What turns inputs into features: "mlp", "resnet", "convnet" (images), "rbf", "fourier", "bspline", or any
        factory (see :mod:`vpboost.featurizers`).
    width, depth, activation : int, int, str, optional
        Size and activation of a named featurizer. By default a width of 16 below 10,000 rows and 32 above, and
        the featurizer's own depth and activation ("silu" may win the race of networks, see ``encoding``).
    weight_scale : float or "auto", default="auto"
        Factor on the initial weights of all layers of "mlp" and "resnet". Small ones suit smooth responses without
        noise, large ones high frequencies. "auto" is 1, or 0.4 where that wins the race.
    method : {{"vp", "gd", "vp_start", "vp_end", "vp_start_end"}}, default="vp"
        When linear weights are solved for in closed form; "vp" is variable projection.
    optimizer : str or optax.GradientTransformation, default="adam"
        Optimiser of the featurizer's parameters.
    step_size : float, optional
        Peak step size of a named optimiser, 0.03 by default.
    max_steps : int or "auto", default="auto"
        Optimiser steps per stage; "auto" is 30 below 2,000 training rows and 50 above, and 200 for responses without
        noise.
    tol : float, optional
        End a stage's training early, in the second half of its steps, when the objective falls by less than this part
        of itself (means over 10 steps). Saves up to half of the time where ``max_steps`` is generous.
    batch_size : int or "auto", default="auto"
        Rows per optimiser step; "auto" uses all up to 8,192 rows and batches of 4,096 above (2,048 and 1,024 where a
        learner takes 100 steps or more).
    encoding : {{"auto", "plain", "quantile", "spline", "fine"}}, default="auto"
        What the learners see of each numeric column: its standardised value ("plain"), also its normal score
        ("quantile": for heavy tails), or also smooth steps between its quantiles ("spline": 16 at the most, for rough
        functions; "fine": 64). "auto", here and in the next two, races the combinations of the portfolio, eight at the
        most, for ten stages on the validation data and takes the best (with 50 training rows or more, 20 for
        classifiers; "plain", 0.8 and 1 below and above a million rows). With squared error, profiles for responses
        without noise race, too, unless a Gaussian process sees noise: of 80 to 2,000 training rows, and up to 20,000
        where the others leave at most 0.02 of the variance unexplained.
    inherit : float or "auto", default="auto"
        Where a learner starts, in [0, 1): this part of the last learner's parameters plus the rest of a fresh draw.
        0 starts afresh; 0.8 suits large tables.
    max_features : float, "auto" or None, default="auto"
        Part of the columns that each learner sees, in (0, 1]; small values suit small noisy tables. None is 1.
    tree_depth : int or "auto", default="auto"
        Levels, up to 8, of a soft tree that is grown beside each learner's features, for responses that jump: a tree of
        six has 64 leaves, whose weights are solved for with all others. 0 is none. Predictions stay smooth, but steep
        where a tree cuts. "auto" is 0, or 6 where that wins the race (up to 60,000 training rows and 32 classes, on one
        device).
    relevance : bool or "auto", default="auto"
        Weigh columns, in the "plain" encoding, by how strongly targets depend on them (by correlation lengths, with
        squared error, then by derivatives of a few quick stages), if that validates better. Helps where many columns
        matter little. "auto" tries it for responses without noise.
    candidates : int, default=1
        Initialisations trained side by side at each stage, of which the best is kept.
    n_chains : int or "auto", default="auto"
        Fits whose mean is the model. They differ in their seeds and, unless validation data are given, in the rows that
        validate: together they learn from nearly all rows. History, scores, callbacks and checkpoints are those of the
        first; the others follow if no callback but early stopping ends it. "auto" is 4 below 20,000 training rows of a
        table (2 for classifiers above 2,000, and with trees for regressors above 5,000) if validation data end the fit,
        else 1 (with trees 2); with ``refit_full`` 3. A fit that goes on by ``warm_start`` makes the others anew;
        for many short ones, set 1.
    refit_full : bool or "auto", default="auto"
        Let the other chains learn from all rows, those set aside for the first, too, for as many stages as the first
        keeps, and average only them; so there must be 2 chains or more. Validation data that are given are never
        trained on. "auto" does so for responses without noise (see ``encoding``).
    reg_lambda : float or "auto", default="auto"
        Initial λ_w, the weight of ½‖w‖² on the linear weights; adapted from stage to stage by the trust region.
        "auto" is 1e-4; 1e-2 beside trees (but for classifiers of 8,000 rows or more), and 1e-10 in double precision,
        where those win the race.
    reg_theta : float or "auto", default="auto"
        λ_θ, the weight of ½‖θ‖² on the featurizer's parameters. "auto" is 0.
    rho_accept, rho_small, gamma_up, gamma_down : float
        The trust region's cutoffs and factors; see :class:`vpboost.TrustRegion`.
    early_stopping_rounds : int, "auto" or None, default="auto"
        Stop when the validation score has not improved for so many stages and keep the best; "auto" waits 10 stages
        for a score better by two thousandths, 20 for one better by four for responses without noise.
        Without validation data, ``validation_fraction`` of the rows is set aside ("auto": of 200 distinct rows or
        more). None does all stages on all rows.
    validation_fraction : float, default=0.15
        Part of the rows set aside for validation when none are given.
    eval_metric : str or callable, optional
        What to watch on the validation data, by default the loss: {metrics}, or
        ``metric(y_true, y_pred) -> float`` where lower is better (repeated rows count once in it).{more}
    warm_start : bool, default=False
        Go on from the previous fit, adding stages up to ``n_estimators``. Settings that belong to the model from its
        first stage on, such as the loss, must not change.
    callbacks : list, optional
        Functions of a ``progress``, or objects with ``after_stage(progress)``; see :mod:`vpboost.callbacks`.
    random_state : int, RandomState or None, default=0
        Seed of everything random, from 0 to 2**32 - 1.
    dtype : {{"auto", "float32", "float64"}}, default="auto"
        Precision of the computation. "auto" is single precision, and double where that wins the race.
    engine : {{"auto", "native", "xla", "numpy"}}, default="auto"
        The backend. "native" trains learners by C; it knows :class:`vpboost.MLP` with tanh, silu or relu, and losses of
        one output, squared error, and cross-entropies; what it does not know goes to the others. XLA compiles programs
        for the shapes of the data first, which takes seconds once a process, and is then about twice as fast as NumPy,
        which begins at once. "auto" is "native" where it suits and was built (it needs a C compiler when vpboost is
        installed from source), else "numpy" for tables where training rows × ``max_steps`` is at most 150,000 (30,000
        for losses that couple outputs), else "xla".
    devices : None, "all", int or list of jax.Device, default=None
        The devices over which the rows of a fit are shared out: all that JAX sees, so many, or these; None is one. The
        bits of the model are the same for 1, 2, 4, 8 and 16 of them. For rows that several processes hold, see
        :mod:`vpboost.distributed`.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    ensemble_ : Ensemble
        The fitted ensemble, on scaled inputs, cut at the best stage; the mean of all chains.
    n_iter_ : int
        Stages done; of the first chain.
    best_iteration_ : int
        The number of learners kept; of the first chain.
    n_chains_ : int
        The number of chains that are averaged.
    best_score_ : float
        The best validation score (the final training loss without validation data); that of the mean of all chains on
        validation data that were given, the mean of all chains' scores on rows that were set aside, and that of the
        first chain with ``refit_full``.
    evals_result_ : dict
        Training loss and validation score of every stage.
    history_ : dict of arrays
        Every stage's loss, ρ, λ_w, alignment and so on; see :class:`vpboost.Record`.
    profile_ : Profile
        The settings in use where they were left to "auto".
    race_ : dict
        Best validation score of each profile in the race; empty when there was nothing to choose.
    feature_importances_ : array of shape (n_features,)
        Mean absolute derivative of the prediction by each input, times the input's spread; sums to one. One per pixel
        for images.
    n_features_in_ : int
        The number of columns of X.
    feature_names_in_ : array of shape (n_features,)
        Their names, where X was a data frame."""
