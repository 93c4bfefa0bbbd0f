"""Front door: chat networks. Routes what people write to conversations, delivers what those say."""
