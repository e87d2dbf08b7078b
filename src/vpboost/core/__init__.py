"""The method: the quadratic model, variable projection, weak learners, the trust region and the boosting loop."""
