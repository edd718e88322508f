"""Entry points of a training: `rudel.fit`, `rudel.train_recipe`, the strategies, and the plan of a recipe."""
