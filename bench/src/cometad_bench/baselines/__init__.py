"""The deep baselines; `cometad.BASELINES` lists them."""
